"""Add whether an injector's bug is valid, what jobs print, their stages, their waits after faults, models, quotas."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
_NEW_IN_JOBS: dict[str, tuple[sa.types.TypeEngine[Any], str]] = {
    "faults": (sa.Integer(), "0"),
    "not_before": (sa.Float(), "0"),
    "about": (sa.Text(), "{}"),
    "stages": (sa.Text(), "[]"),
    "owner": (sa.String(length=32), ""),
    "usd": (sa.Float(), "0"),
}


def upgrade() -> None:
    """Add the columns and the tables."""
    op.add_column("rollouts", sa.Column("valid", sa.Boolean(), nullable=True))
    for name, (kind, default) in _NEW_IN_JOBS.items():
        op.add_column("jobs", sa.Column(name, kind, nullable=False, server_default=default))
    op.add_column("tokens", sa.Column("usd_per_day", sa.Float(), nullable=True))
    op.create_table(
        "job_lines",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("artifact_id", sa.String(length=64), nullable=False),
        sa.Column("attempt_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_job_lines")),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_job_lines_job_id_number"), "job_lines", ["job_id", "number"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("models")
    op.drop_index(op.f("ix_job_lines_job_id_number"), table_name="job_lines")
    op.drop_table("job_lines")
    for name in _NEW_IN_JOBS:
        op.drop_column("jobs", name)
    op.drop_column("tokens", "usd_per_day")
    op.drop_column("rollouts", "valid")
