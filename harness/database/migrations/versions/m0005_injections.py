"""Add which attempt of an injector made an episode's bug; attempts of injectors have no tree as their artifact."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column, and remove the hashes of trees."""
    op.add_column("episodes", sa.Column("injection", sa.String(length=64), nullable=False, server_default=""))
    op.create_index(op.f("ix_episodes_injection"), "episodes", ["injection"])
    op.execute(
        "UPDATE rollouts SET artifact_id = '' WHERE role = 'injector' AND artifact_id NOT IN (SELECT id FROM artifacts)"
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_index(op.f("ix_episodes_injection"), table_name="episodes")
    op.drop_column("episodes", "injection")
