"""Define the tables.

`entries` holds what is stored, and `events` in which order; the others are made from entries, for queries. Only
projects, jobs, workers, idempotency keys and tokens belong to the service. Times are seconds since the epoch. A change
here needs a migration (`harness/database/migrations`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)
# SQLite numbers rows by itself only in a column of the type INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")

entries = Table(
    "entries",
    METADATA,
    Column("path", String(512), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary),  # A record in JSON; other files are blobs, named by their digest.
    Column("stored_at", Float, nullable=False),
    Index(None, "kind"),
    Index(None, "digest"),
)

rounds = Table(
    "rounds",
    METADATA,
    Column("path", String(512), primary_key=True),
    Column("run", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("project", Text, nullable=False),
    Column("episodes", Integer, nullable=False),
    Column("valid", Integer, nullable=False),
    Column("solved", Integer, nullable=False),
    Column("graded", Integer, nullable=False),
    Column("rewards", Float, nullable=False),  # The sum over `rewarded` episodes.
    Column("rewarded", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("stored_at", Float, nullable=False),
    Index(None, "run", "round"),
    Index(None, "stored_at"),
)

episodes = Table(
    "episodes",
    METADATA,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("path", String(512), nullable=False),
    Column("position", Integer, nullable=False),  # In the list that the entry at `path` holds.
    Column("run", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("project", Text, nullable=False),
    Column("artifact_id", String(64), nullable=False),
    Column("injection", String(64), nullable=False),  # The injector's attempt that made it; empty without a model.
    Column("strategy", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("file", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("lines", Integer, nullable=False),
    Column("fail_to_pass", Integer, nullable=False),
    Column("order", Integer, nullable=False),
    Column("valid", Boolean, nullable=False),
    Column("check", Text, nullable=False),  # What rejected it; empty if it is valid.
    Column("solved", Integer, nullable=False),
    Column("graded", Integer, nullable=False),
    Column("solve_rate", Float),
    Column("reward", Float),
    Column("tokens", BigInteger, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("stored_at", Float, nullable=False),
    UniqueConstraint("path", "position"),
    Index(None, "run"),
    Index(None, "project"),
    Index(None, "artifact_id"),
    Index(None, "injection"),
    Index(None, "valid"),
    Index(None, "check"),
)

artifacts = Table(
    "artifacts",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("kind", String(32), nullable=False),  # artifacts, or spare: valid, and more than a run wanted.
    Column("repository", Text, nullable=False),
    Column("tree_hash", String(64), nullable=False),
    Column("strategy", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("order", Integer, nullable=False),
    Column("parent", String(64), nullable=False),
    Column("fail_to_pass", Integer, nullable=False),
    Column("files", Integer, nullable=False),
    Column("lines", Integer, nullable=False),
    Column("stored_at", Float, nullable=False),
    Index(None, "repository"),
    Index(None, "strategy"),
    Index(None, "stored_at"),
)

candidates = Table(
    "candidates",
    METADATA,
    Column("path", String(512), primary_key=True),
    Column("campaign", String(96), nullable=False),
    Column("position", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("strategy", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("file", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("line", Integer, nullable=False),
    Column("check", Text, nullable=False),
    Column("artifact_id", String(64), nullable=False),
    Column("fail_to_pass", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("stored_at", Float, nullable=False),
    Index(None, "campaign"),
    Index(None, "status", "check"),
    Index(None, "file"),
)

rollouts = Table(
    "rollouts",
    METADATA,
    Column("id", String(64), primary_key=True),
    # Or the id of an instance; of an injector, the bug that it made, empty if it is not valid.
    Column("artifact_id", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("player", Text, nullable=False),  # The solver's or the injector's name.
    Column("attempt", Integer, nullable=False),
    Column("resolved", Boolean),  # By the strict rule; None without a grade.
    Column("tests", Boolean),
    Column("valid", Boolean),  # Whether an injector's bug is; None for solvers, and until the injector has ended.
    Column("reward", Float),
    Column("reason", String(64), nullable=False),
    Column("exit_reason", String(64), nullable=False),
    Column("status", String(32), nullable=False),  # running until it is graded or has ended without one.
    Column("steps", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("unpriced", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("grading_s", Float, nullable=False),
    Column("stored_at", Float, nullable=False),
    Index(None, "artifact_id"),
    Index(None, "player"),
    Index(None, "stored_at"),
)

events = Table(
    "events",
    METADATA,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("kind", String(32), nullable=False),
    Column("subject", String(512), nullable=False),
    Column("data", Text, nullable=False),  # JSON
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,  # A number is never used twice, even after the last row is removed.
)

projects = Table(
    "projects",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("source", Text, nullable=False),  # A folder of the service's machines, or an address for git.
    Column("commit", String(64), nullable=False),
    Column("image", Text, nullable=False),
    Column("python", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

jobs = Table(
    "jobs",
    METADATA,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("project_id", String(32)),
    Column("settings", Text, nullable=False),  # JSON, validated before it is stored.
    Column("status", String(16), nullable=False),
    Column("stage", Text, nullable=False),
    Column("error_code", String(64), nullable=False),
    Column("error", Text, nullable=False),
    Column("result", Text, nullable=False),  # JSON; empty until it is done.
    Column("attempt", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("worker_id", String(64), nullable=False),
    Column("lease_token", String(64), nullable=False),
    Column("lease_until", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("faults", Integer, nullable=False),  # How often a fault of the infrastructure has ended it.
    Column("not_before", Float, nullable=False),  # It waits at least until then.
    Column("about", Text, nullable=False),  # JSON: where its results are.
    Column("stages", Text, nullable=False),  # JSON: its stages, each with the time at which it began.
    Column("owner", String(32), nullable=False),  # The id of the token that has submitted it; empty without one.
    Column("usd", Float, nullable=False),  # What it may spend on models.
    Index(None, "status", "number"),
    Index(None, "project_id"),
)

job_lines = Table(
    "job_lines",
    METADATA,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("job_id", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("artifact_id", String(64), nullable=False),
    Column("attempt_id", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Index(None, "job_id", "number"),
)

models = Table(
    "models",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("entry", Text, nullable=False),  # JSON: a harness.models.registry.Entry.
    Column("created_at", Float, nullable=False),
)

workers = Table(
    "workers",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("sandbox", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("job_id", String(32), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("jobs_done", Integer, nullable=False),
    Column("counters", Text, nullable=False),  # JSON: sandbox starts and failures.
)

idempotency_keys = Table(
    "idempotency_keys",
    METADATA,
    Column("key", String(128), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("job_id", String(32), nullable=False),
    Column("created_at", Float, nullable=False),
)

tokens = Table(
    "tokens",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", String(64), nullable=False, unique=True),  # SHA-256 of the secret, which is stored nowhere.
    Column("scope", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("used_at", Float),
    Column("usd_per_day", Float),  # What its jobs may spend on models in 24 hours; None without a limit.
)
