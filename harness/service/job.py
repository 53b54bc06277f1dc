"""Describe a job of the service: what it does, its status, its result, and its lease."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from harness.records.job_reports import JobReport
from pytest_ssr.errors import SsrError


class JobKind(StrEnum):
    """What a job does: the command of `ssr` that it runs."""

    PLAY = "play"
    INJECT = "inject"
    VALIDATE = "validate"
    SOLVE = "solve"
    EXPORT = "export"
    LEADERBOARD = "leaderboard"


class JobStatus(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to the job by itself."""
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


class JobErrorCode(StrEnum):
    """Why a job has failed."""

    NONE = ""
    WORKER_LOST = "worker-lost"
    """Its workers ended in the middle of it, as often as a job is begun."""
    PROJECT = "project"
    """The project cannot be read here."""
    SETTINGS = "settings"
    SANDBOX = "sandbox"
    MODEL = "model"
    STORE = "store"
    KILLED = "killed"
    """A signal that its worker did not send ended it, such as one of the kernel for memory."""
    BROKEN = "broken"


class Lease(StrEnum):
    """What a worker learns when it renews a lease."""

    HELD = "held"
    CANCELLED = "cancelled"
    """It still has the job, and should end it."""
    LOST = "lost"


class QueueErrorCode(StrEnum):
    """Why the queue refuses something."""

    KEY_REUSED = "key-reused"
    NOT_ENDED = "not-ended"
    SUCCEEDED = "succeeded"
    NO_BUDGET = "no-budget"
    """A token with a quota needs a budget for a job that uses models."""
    QUOTA = "quota"
    """The budget is more than is left of the token's quota."""


class QueueError(SsrError):
    """The queue refuses what was asked of it."""

    def __init__(self, message: str, *, code: QueueErrorCode) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored."""

    id: str
    number: int
    """Its place in the order of submission."""
    kind: JobKind
    project_id: str | None
    settings: Mapping[str, Any]
    status: JobStatus
    stage: str
    error_code: JobErrorCode
    error: str
    result: Mapping[str, Any]
    attempt: int
    max_attempts: int
    cancel_requested: bool
    worker_id: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    faults: int = 0
    """How often a fault of the infrastructure has ended it."""
    not_before: float = 0.0
    """It waits at least until then, in seconds since the epoch."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Where its results are: `run` of self-play, `campaign` of an injection."""
    stages: Sequence[tuple[str, float]] = ()
    """Its stages in this attempt, each with the time at which it began."""

    @classmethod
    def of(cls, row: Any) -> Job:
        """Return the job in a row of the table, as SQLAlchemy returns it."""
        row = row._mapping
        values = {f.name: row[f.name] for f in fields(cls)}
        return cls(
            **values
            | {name: json.loads(row[name] or "{}") for name in ("settings", "result", "about")}
            | {"stages": [(str(stage), float(at)) for stage, at in json.loads(row["stages"] or "[]")]}
            | {
                "kind": JobKind(row["kind"]),
                "status": JobStatus(row["status"]),
                "error_code": JobErrorCode(row["error_code"]),
            }
        )

    def to_event(self) -> dict[str, Any]:
        """Return what an event shows."""
        return {
            "id": self.id,
            "kind": str(self.kind),
            "status": str(self.status),
            "stage": self.stage,
            "project": self.project_id,
        }


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of a job's log."""

    number: int
    """Its place in the log of all jobs."""
    attempt: int
    """The how manieth time that the job has begun, counted from 1."""
    kind: str
    """valid, bad, missed, survived, heading, or empty."""
    text: str
    artifact_id: str
    """The artifact that it is about, or empty."""
    attempt_id: str
    """The attempt of a solver that it is about, or empty."""
    created_at: float


@dataclass(frozen=True, slots=True)
class Progress:
    """What a worker has read of a job's reports since it last told the queue."""

    stage: str = ""
    """What the job is doing."""
    lines: Sequence[JobReport] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    """All that is known, not only what is new."""
    stages: Sequence[tuple[str, float]] = ()
    """All stages so far."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker holds."""

    job: Job
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job has ended."""

    status: JobStatus
    result: Mapping[str, Any] | None = None
    error_code: JobErrorCode = JobErrorCode.NONE
    error: str = ""
    is_fault: bool = False
    """Whether a fault of the infrastructure ended it, and not the job itself."""
