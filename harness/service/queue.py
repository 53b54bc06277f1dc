"""Hand out jobs to workers, from a queue in the database.

A worker holds a job for a limited time, its lease, and renews it while the job runs; when the lease ends, the job
returns to the queue. Each claim has a token of its own, and whatever a worker reports about a job counts only while
the job has that token. So a job that two workers ran, because one of them was thought to be lost, ends once.

Leases are counted by the clock of PostgreSQL, or by the machine's with SQLite, which is on one machine. A clock that
jumps forward ends leases early: the job runs again, and what its first worker reports is refused. One that jumps back
would hold the jobs of lost workers for long: a lease that ends later than any can is shortened.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from harness.database.engine import database_time, describing, reading
from harness.database.events import add_event
from harness.database.fitting import cleaned
from harness.database.schema import idempotency_keys, jobs
from harness.service.job import (
    Claim,
    Job,
    JobErrorCode,
    JobKind,
    JobStatus,
    Lease,
    Outcome,
    Progress,
    QueueError,
    QueueErrorCode,
)
from harness.service.job_log import JobLog, add_lines, remove_lines
from harness.service.quotas import DAY_S, require_quota

__all__ = [
    "LEASE_S",
    "MAX_ATTEMPTS",
    "MAX_FAULTS",
    "Claim",
    "Job",
    "JobErrorCode",
    "JobKind",
    "JobQueue",
    "JobStatus",
    "Lease",
    "Outcome",
    "Progress",
    "QueueError",
    "QueueErrorCode",
]
LEASE_S = 30.0
MAX_ATTEMPTS = 5
"""How often a job is begun before it fails; only lost workers use up attempts."""
MAX_STAGE_CHARS = 300
MAX_FAULTS = 20
"""How often a job is begun again after faults of the infrastructure, over about an hour and a half."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 300.0
_MAX_ERROR_CHARS = 4_000
_KEY_S = DAY_S
"""How long the key of a request is remembered."""
_NOT_HELD: Mapping[str, Any] = {"worker_id": "", "lease_token": "", "lease_until": 0.0, "stage": ""}


class JobQueue:
    """The jobs of a service. Safe for concurrent processes and threads."""

    def __init__(self, engine: sa.Engine, *, lease_s: float = LEASE_S) -> None:
        """lease_s: the same for all queues of a database."""
        self.engine, self.lease_s = engine, lease_s
        self.log = JobLog(engine)

    def submit(
        self,
        kind: JobKind,
        settings: Mapping[str, Any],
        project_id: str | None = None,
        idempotency_key: str | None = None,
        *,
        owner: str = "",
        uses_models: bool = False,
    ) -> Job:
        """Add a job and return it; with a key that was used for the same request, return the job of that request.

        settings: validated ones (`jobs.validated`). owner: the id of the token that submits it. uses_models: whether it
        may cost something. Raises QueueError if the key was used for another request, and if the owner's quota does not
        allow the job.
        """
        text = json.dumps(dict(settings), sort_keys=True)
        job_id = secrets.token_hex(16)
        with describing(self.engine.url), self.engine.begin() as connection:
            if idempotency_key is not None:
                request = hashlib.sha256(json.dumps([kind, text, project_id]).encode()).hexdigest()
                earlier = _earlier_job(connection, idempotency_key, request, job_id)
                if earlier is not None:
                    return earlier
            usd = float(settings.get("budget_usd", 0.0)) if uses_models else 0.0
            if uses_models and owner:
                require_quota(connection, owner, settings.get("budget_usd"))
            row = {
                **dict.fromkeys(("stage", "error_code", "error", "result", "worker_id", "lease_token"), ""),
                "id": job_id,
                "kind": str(kind),
                "project_id": project_id,
                "settings": text,
                "status": str(JobStatus.QUEUED),
                "attempt": 0,
                "max_attempts": MAX_ATTEMPTS,
                "cancel_requested": False,
                "lease_until": 0.0,
                "faults": 0,
                "not_before": 0.0,
                "about": "{}",
                "stages": "[]",
                "owner": owner,
                "usd": usd,
                "created_at": database_time(connection),
            }
            job = Job.of(connection.execute(sa.insert(jobs).values(row).returning(*jobs.c)).one())
            add_event(connection, "job", job.id, job.to_event())
        return job

    def get(self, job_id: str) -> Job | None:
        """Return a job, or None if it does not exist."""
        with describing(self.engine.url), reading(self.engine).connect() as connection:
            return _find(connection, job_id)

    def claim(self, worker_id: str) -> Claim | None:
        """Return the first job of the queue, which the worker now holds; None if the queue is empty.

        Jobs whose leases have ended return to the queue first, behind all that were begun less often.
        """
        with describing(self.engine.url):
            if not self._has_work():
                return None
            with self.engine.begin() as connection:
                self._return_lapsed(connection)
            with self.engine.begin() as connection:
                # One that has lost its workers may be what kills them, and must not hold up the others.
                now = database_time(connection)
                first = sa.select(jobs.c.number).where(_is_due(now))
                first = first.order_by(jobs.c.attempt, jobs.c.number)
                number = connection.scalar(first.limit(1).with_for_update(skip_locked=True))
                if number is None:
                    return None
                token = secrets.token_hex(16)
                job = _update(
                    connection,
                    jobs.c.number == number,
                    status=JobStatus.RUNNING,
                    attempt=jobs.c.attempt + 1,
                    worker_id=worker_id,
                    lease_token=token,
                    lease_until=now + self.lease_s,
                    started_at=now,
                    about="{}",
                    stages="[]",
                    error_code="",
                    error="",
                )
        return Claim(job, token) if job is not None else None

    def renew(self, claim: Claim) -> Lease:
        """Extend a lease from now on."""
        with describing(self.engine.url), self.engine.begin() as connection:
            values = {"lease_until": database_time(connection) + self.lease_s}
            statement = sa.update(jobs).where(_is_held(claim)).values(values).returning(jobs.c.cancel_requested)
            cancel = connection.scalar(statement)
        if cancel is None:
            return Lease.LOST
        return Lease.CANCELLED if cancel else Lease.HELD

    def report(self, claim: Claim, progress: Progress) -> bool:
        """Record what a job has reported; False if the worker has lost it, so that nothing is recorded."""
        values = {
            "stage": cleaned(progress.stage)[:MAX_STAGE_CHARS],
            "about": json.dumps(dict(progress.about)),
            "stages": json.dumps(list(progress.stages)),
        }
        with describing(self.engine.url), self.engine.begin() as connection:
            job = _update(connection, _is_held(claim), **values)
            if job is None:
                return False
            add_lines(connection, job, progress.lines)
        return True

    def finish(self, claim: Claim, outcome: Outcome) -> bool:
        """Record how a job has ended; False if the worker has lost it, so that nothing is recorded."""
        with describing(self.engine.url), self.engine.begin() as connection:
            job = _update(
                connection,
                _is_held(claim),
                status=outcome.status,
                result="" if outcome.result is None else json.dumps(dict(outcome.result)),
                error_code=outcome.error_code,
                error=cleaned(outcome.error)[:_MAX_ERROR_CHARS],
                ended_at=database_time(connection),
                **{**_NOT_HELD, "worker_id": claim.job.worker_id},
            )
        return job is not None

    def release(self, claim: Claim) -> bool:
        """Return a job to the queue, as if this attempt had not been made; one to be cancelled is cancelled."""
        with describing(self.engine.url), self.engine.begin() as connection:
            held = sa.select(jobs.c.cancel_requested).where(_is_held(claim)).with_for_update()
            cancel = connection.scalar(held)
            if cancel is None:
                return False
            status = JobStatus.CANCELLED if cancel else JobStatus.QUEUED
            ended_at = database_time(connection) if cancel else None
            values = {"status": status, "ended_at": ended_at, "attempt": jobs.c.attempt - 1}
            return _update(connection, _is_held(claim), **values, **_NOT_HELD) is not None

    def put_back(self, claim: Claim, outcome: Outcome) -> bool:
        """Put a job that a fault of the infrastructure has ended back into the queue; it waits longer each time.

        It uses up no attempt. After `MAX_FAULTS` of them it fails with this outcome. False if the worker has lost it.
        """
        with describing(self.engine.url), self.engine.begin() as connection:
            held = sa.select(jobs.c.faults, jobs.c.cancel_requested).where(_is_held(claim)).with_for_update()
            row = connection.execute(held).one_or_none()
            if row is None:
                return False
            faults = int(row.faults)
            if row.cancel_requested:
                ended = {"status": JobStatus.CANCELLED, "ended_at": database_time(connection)}
                return _update(connection, _is_held(claim), **ended, **_NOT_HELD) is not None
            if faults < MAX_FAULTS:
                _update(
                    connection,
                    _is_held(claim),
                    status=JobStatus.QUEUED,
                    attempt=jobs.c.attempt - 1,
                    faults=faults + 1,
                    not_before=database_time(connection) + min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**faults),
                    error_code=outcome.error_code,
                    error=cleaned(outcome.error)[:_MAX_ERROR_CHARS],
                    **_NOT_HELD,
                )
                return True
        return self.finish(claim, outcome)

    def cancel(self, job_id: str) -> Job | None:
        """Cancel a job: at once if it waits, by its worker if it runs; one that has ended stays as it is.

        Return the job, or None if it does not exist.
        """
        with describing(self.engine.url), self.engine.begin() as connection:
            job = _find(connection, job_id, lock=True)
            if job is None or job.status.has_ended or job.cancel_requested:
                return job
            if job.status is JobStatus.RUNNING:
                return _update(connection, jobs.c.id == job_id, cancel_requested=True, stage="being cancelled")
            cancelled = {"status": JobStatus.CANCELLED, "ended_at": database_time(connection), "cancel_requested": True}
            return _update(connection, jobs.c.id == job_id, **cancelled)

    def retry(self, job_id: str) -> Job | None:
        """Put a job that failed or was cancelled into the queue again; return it, or None if it does not exist.

        What it may spend counts again, and its log begins again. Raises QueueError for a job that has not ended, or has
        succeeded, and if its owner's quota does not allow it.
        """
        with describing(self.engine.url), self.engine.begin() as connection:
            job = _find(connection, job_id, lock=True)
            if job is None:
                return None
            if not job.status.has_ended:
                raise QueueError(f"the job {job_id} has not ended; cancel it first", code=QueueErrorCode.NOT_ENDED)
            if job.status is JobStatus.SUCCEEDED:
                raise QueueError(f"the job {job_id} has succeeded; submit a new one", code=QueueErrorCode.SUCCEEDED)
            spending = self._spend_again(connection, job)
            remove_lines(connection, job_id)
            cleared = dict.fromkeys(("stage", "error_code", "error", "result", "worker_id"), "")
            values: dict[str, Any] = {"cancel_requested": False, "started_at": None, "ended_at": None}
            values |= {**dict.fromkeys(("attempt", "faults", "not_before"), 0), **spending}
            return _update(connection, jobs.c.id == job_id, status=JobStatus.QUEUED, **cleared, **values)

    def _spend_again(self, connection: sa.Connection, job: Job) -> dict[str, float]:
        """Return what changes in a job that may spend its budget once more; raises QueueError if its owner's quota does
        not allow it.
        """
        row = connection.execute(sa.select(jobs.c.owner, jobs.c.usd).where(jobs.c.id == job.id)).one()
        if not row.usd:
            return {}
        budget_usd = float(job.settings.get("budget_usd", 0.0))
        if row.owner:
            require_quota(connection, row.owner, budget_usd)
        now = database_time(connection)
        # It counts from now on, with what it may have spent in the 24 hours before.
        earlier = row.usd if job.created_at > now - DAY_S else 0.0
        return {"usd": earlier + budget_usd, "created_at": now}

    def _has_work(self) -> bool:
        """Return whether a claim may find something, without a lock that would stop writers."""
        with reading(self.engine).connect() as connection:
            now = database_time(connection)
            statement = sa.select(jobs.c.number).where(_is_due(now) | self._has_lapsed(now)).limit(1)
            return connection.scalar(statement) is not None

    def _has_lapsed(self, now: float) -> sa.ColumnElement[bool]:
        # A lease that ends too late was given before the clock jumped back.
        until = jobs.c.lease_until
        return (jobs.c.status == JobStatus.RUNNING) & ((until < now) | (until > now + self.lease_s))

    def _return_lapsed(self, connection: sa.Connection) -> None:
        now = database_time(connection)
        lapsed = sa.select(jobs).where(self._has_lapsed(now)).order_by(jobs.c.number)
        # All rows are locked before the first event: writers of events take turns, and must not wait for each other.
        for row in connection.execute(lapsed.with_for_update(skip_locked=True)).all():
            same = jobs.c.number == row.number
            if row.lease_until > now:
                connection.execute(sa.update(jobs).where(same).values(lease_until=now + self.lease_s))
                continue
            ended = {**_NOT_HELD, "ended_at": now}
            if row.cancel_requested:
                _update(connection, same, status=JobStatus.CANCELLED, **ended)
            elif row.attempt >= row.max_attempts:
                error = f"its workers were lost {row.attempt} times; see their logs, then retry it"
                code = JobErrorCode.WORKER_LOST
                _update(connection, same, status=JobStatus.FAILED, error_code=code, error=error, **ended)
            else:
                _update(connection, same, status=JobStatus.QUEUED, **{**ended, "ended_at": None})


def _is_due(now: float) -> sa.ColumnElement[bool]:
    """Return the condition under which a job can begin; a wait that was set before the clock jumped back is over."""
    waits = (jobs.c.not_before > now) & (jobs.c.not_before <= now + _LONGEST_WAIT_S)
    return (jobs.c.status == JobStatus.QUEUED) & ~waits


def _is_held(claim: Claim) -> sa.ColumnElement[bool]:
    """Return the condition under which a worker has a job: the fence against those that have lost it."""
    is_running = jobs.c.status == JobStatus.RUNNING
    return (jobs.c.id == claim.job.id) & (jobs.c.lease_token == claim.token) & is_running


def _update(connection: sa.Connection, condition: sa.ColumnElement[bool], **values: Any) -> Job | None:
    """Change a job and record the event; None if no job meets the condition."""
    row = connection.execute(sa.update(jobs).where(condition).values(values).returning(*jobs.c)).one_or_none()
    if row is None:
        return None
    job = Job.of(row)
    add_event(connection, "job", job.id, job.to_event())
    return job


def _find(connection: sa.Connection, job_id: str, *, lock: bool = False) -> Job | None:
    statement = sa.select(jobs).where(jobs.c.id == job_id)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else Job.of(row)


def _earlier_job(connection: sa.Connection, key: str, request: str, job_id: str) -> Job | None:
    """Return the job of an earlier request with this key, or record the key for a new one."""
    now = database_time(connection)
    connection.execute(sa.delete(idempotency_keys).where(idempotency_keys.c.created_at < now - _KEY_S))
    insert = _insert_for(connection)(idempotency_keys)
    row = {"key": key, "request_hash": request, "job_id": job_id, "created_at": now}
    statement = insert.values(row).on_conflict_do_nothing(index_elements=["key"]).returning(idempotency_keys.c.key)
    # Of two requests at the same time, the second waits here until the first has its job.
    if connection.execute(statement).one_or_none() is not None:
        return None
    used = connection.execute(sa.select(idempotency_keys).where(idempotency_keys.c.key == key)).one()
    if used.request_hash != request:
        raise QueueError(
            "the idempotency key was used for another request; use a new one", code=QueueErrorCode.KEY_REUSED
        )
    return _find(connection, used.job_id)


def _insert_for(connection: sa.Connection) -> Any:
    from sqlalchemy.dialects import postgresql, sqlite

    return sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
