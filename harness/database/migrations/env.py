"""Run migrations on the connection that `engine.upgrade` gives; Alembic loads this file."""

from alembic import context

from harness.database.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
