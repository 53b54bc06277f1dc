"""Create the tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("tree_hash", sa.String(length=64), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("order", sa.Integer(), nullable=False),
        sa.Column("parent", sa.String(length=64), nullable=False),
        sa.Column("fail_to_pass", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    op.create_index(op.f("ix_artifacts_repository"), "artifacts", ["repository"], unique=False)
    op.create_index(op.f("ix_artifacts_stored_at"), "artifacts", ["stored_at"], unique=False)
    op.create_index(op.f("ix_artifacts_strategy"), "artifacts", ["strategy"], unique=False)
    op.create_table(
        "candidates",
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("campaign", sa.String(length=96), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("check", sa.Text(), nullable=False),
        sa.Column("artifact_id", sa.String(length=64), nullable=False),
        sa.Column("fail_to_pass", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_candidates")),
    )
    op.create_index(op.f("ix_candidates_campaign"), "candidates", ["campaign"], unique=False)
    op.create_index(op.f("ix_candidates_file"), "candidates", ["file"], unique=False)
    op.create_index(op.f("ix_candidates_status_check"), "candidates", ["status", "check"], unique=False)
    op.create_table(
        "entries",
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_entries")),
    )
    op.create_index(op.f("ix_entries_digest"), "entries", ["digest"], unique=False)
    op.create_index(op.f("ix_entries_kind"), "entries", ["kind"], unique=False)
    op.create_table(
        "episodes",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("artifact_id", sa.String(length=64), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("fail_to_pass", sa.Integer(), nullable=False),
        sa.Column("order", sa.Integer(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("check", sa.Text(), nullable=False),
        sa.Column("solved", sa.Integer(), nullable=False),
        sa.Column("graded", sa.Integer(), nullable=False),
        sa.Column("solve_rate", sa.Float(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_episodes")),
        sa.UniqueConstraint("path", "position", name=op.f("uq_episodes_path_position")),
    )
    op.create_index(op.f("ix_episodes_artifact_id"), "episodes", ["artifact_id"], unique=False)
    op.create_index(op.f("ix_episodes_check"), "episodes", ["check"], unique=False)
    op.create_index(op.f("ix_episodes_project"), "episodes", ["project"], unique=False)
    op.create_index(op.f("ix_episodes_run"), "episodes", ["run"], unique=False)
    op.create_index(op.f("ix_episodes_valid"), "episodes", ["valid"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.String(length=512), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("artifact_id", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("player", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("resolved", sa.Boolean(), nullable=True),
        sa.Column("tests", sa.Boolean(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("exit_reason", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("unpriced", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("grading_s", sa.Float(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
    )
    op.create_index(op.f("ix_rollouts_artifact_id"), "rollouts", ["artifact_id"], unique=False)
    op.create_index(op.f("ix_rollouts_player"), "rollouts", ["player"], unique=False)
    op.create_index(op.f("ix_rollouts_stored_at"), "rollouts", ["stored_at"], unique=False)
    op.create_table(
        "rounds",
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("valid", sa.Integer(), nullable=False),
        sa.Column("solved", sa.Integer(), nullable=False),
        sa.Column("graded", sa.Integer(), nullable=False),
        sa.Column("rewards", sa.Float(), nullable=False),
        sa.Column("rewarded", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_rounds")),
    )
    op.create_index(op.f("ix_rounds_run_round"), "rounds", ["run", "round"], unique=False)
    op.create_index(op.f("ix_rounds_stored_at"), "rounds", ["stored_at"], unique=False)


def downgrade() -> None:
    """Drop all tables."""
    op.drop_index(op.f("ix_rounds_stored_at"), table_name="rounds")
    op.drop_index(op.f("ix_rounds_run_round"), table_name="rounds")
    op.drop_table("rounds")
    op.drop_index(op.f("ix_rollouts_stored_at"), table_name="rollouts")
    op.drop_index(op.f("ix_rollouts_player"), table_name="rollouts")
    op.drop_index(op.f("ix_rollouts_artifact_id"), table_name="rollouts")
    op.drop_table("rollouts")
    op.drop_table("events")
    op.drop_index(op.f("ix_episodes_valid"), table_name="episodes")
    op.drop_index(op.f("ix_episodes_run"), table_name="episodes")
    op.drop_index(op.f("ix_episodes_project"), table_name="episodes")
    op.drop_index(op.f("ix_episodes_check"), table_name="episodes")
    op.drop_index(op.f("ix_episodes_artifact_id"), table_name="episodes")
    op.drop_table("episodes")
    op.drop_index(op.f("ix_entries_kind"), table_name="entries")
    op.drop_index(op.f("ix_entries_digest"), table_name="entries")
    op.drop_table("entries")
    op.drop_index(op.f("ix_candidates_status_check"), table_name="candidates")
    op.drop_index(op.f("ix_candidates_file"), table_name="candidates")
    op.drop_index(op.f("ix_candidates_campaign"), table_name="candidates")
    op.drop_table("candidates")
    op.drop_index(op.f("ix_artifacts_strategy"), table_name="artifacts")
    op.drop_index(op.f("ix_artifacts_stored_at"), table_name="artifacts")
    op.drop_index(op.f("ix_artifacts_repository"), table_name="artifacts")
    op.drop_table("artifacts")
