"""Keep what jobs print: at most `MAX_LINES` lines each time that a job begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from harness.database.engine import database_time, describing, reading
from harness.database.fitting import fitted
from harness.database.schema import job_lines
from harness.records.job_reports import JobReport
from harness.service.job import Job, JobLine

MAX_LINES = 2_000


class JobLog:
    """The logs of all jobs. All methods raise StoreError."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def lines(self, job_id: str, after: int = 0, *, limit: int = 5_000) -> list[JobLine]:
        """Return the log of a job in order: the first lines after the one of this number."""
        names = (job_lines.c[field.name] for field in fields(JobLine))
        wanted = sa.select(*names).where(job_lines.c.job_id == job_id, job_lines.c.number > after)
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            rows = connection.execute(wanted.order_by(job_lines.c.number).limit(limit)).all()
        return [JobLine(**row._mapping) for row in rows]

    def last_lines(self, job_id: str, limit: int) -> list[JobLine]:
        """Return the last lines of the log of a job, in order."""
        number = job_lines.c.number
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            newest = sa.select(number).where(job_lines.c.job_id == job_id).order_by(number.desc())
            first = connection.scalar(newest.limit(1).offset(limit - 1))
        return self.lines(job_id, int(first) - 1 if first is not None else 0, limit=limit)


def add_lines(connection: sa.Connection, job: Job, reports: Sequence[JobReport]) -> None:
    """Add lines to the log of a job as far as there is room; the last line then says that the rest is not kept."""
    if not reports:
        return
    # Faults use up no attempt.
    begun, now = job.attempt + job.faults, database_time(connection)
    same = (job_lines.c.job_id == job.id) & (job_lines.c.attempt == begun)
    room = MAX_LINES - int(connection.scalar(sa.select(sa.func.count()).where(same)) or 0)
    rows = [_row(job, begun, report, now) for report in reports[: max(0, room)]]
    if len(reports) >= room > 0:
        rows[-1] = _row(job, begun, JobReport(line=f"more than {MAX_LINES} lines; the rest is not kept"), now)
    if rows:
        connection.execute(sa.insert(job_lines), rows)


def remove_lines(connection: sa.Connection, job_id: str) -> None:
    """Remove the log of a job."""
    connection.execute(sa.delete(job_lines).where(job_lines.c.job_id == job_id))


def _row(job: Job, begun: int, report: JobReport, now: float) -> dict[str, Any]:
    values = {
        "job_id": job.id,
        "attempt": begun,
        "kind": report.kind,
        "text": report.line,
        "artifact_id": report.artifact,
        "attempt_id": report.attempt,
        "created_at": now,
    }
    return fitted(job_lines, values)
