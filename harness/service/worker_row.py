"""Show a worker to others: its row in the database, and events when its status changes."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from harness.database.engine import database_time, describing
from harness.database.events import add_event
from harness.database.schema import workers

LOST_S = 60.0
"""A worker that was not seen for this long is taken for lost."""
_FORGET_S = 7 * 86_400.0


class WorkerStatus(StrEnum):
    """What a worker does."""

    IDLE = "idle"
    BUSY = "busy"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(slots=True)
class WorkerRow:
    """The row of this worker."""

    engine: sa.Engine
    sandbox: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    jobs_done: int = 0
    sandboxes: Counter[str] = field(default_factory=Counter)
    """Starts and failures of the sandboxes of its jobs that have ended."""

    def show(self, status: WorkerStatus, job_id: str = "") -> None:
        """Record that the worker is alive, and what it does."""
        row = {
            "status": str(status),
            "job_id": job_id,
            "jobs_done": self.jobs_done,
            "counters": json.dumps({f"sandbox_{name}": count for name, count in self.sandboxes.items()}),
        }
        with describing(self.engine.url), self.engine.begin() as connection:
            row["seen_at"] = now = database_time(connection)
            own = workers.c.id == self.id
            before = connection.execute(sa.select(workers.c.status, workers.c.job_id).where(own)).one_or_none()
            if before is None:
                connection.execute(sa.insert(workers).values({**row, **self._identity(now)}))
            else:
                connection.execute(sa.update(workers).where(own).values(row))
            # Others may have taken it for lost in between.
            if before is None or tuple(before) != (status, job_id):
                add_event(connection, "worker", self.id, _event(self.id, status, job_id))

    def report_lost(self) -> None:
        """Record which other workers are lost, and forget those that ended long ago."""
        was_alive = workers.c.status.in_([WorkerStatus.IDLE, WorkerStatus.BUSY])
        with describing(self.engine.url), self.engine.begin() as connection:
            now = database_time(connection)
            connection.execute(sa.delete(workers).where(workers.c.seen_at < now - _FORGET_S))
            silent = sa.select(workers.c.id).where(was_alive, workers.c.seen_at < now - LOST_S)
            # All rows are locked before the first event, which is where writers take turns.
            ids = connection.scalars(silent.with_for_update(skip_locked=True)).all()
            for worker_id in ids:
                statement = sa.update(workers).where(workers.c.id == worker_id)
                connection.execute(statement.values(status=str(WorkerStatus.LOST), job_id=""))
                add_event(connection, "worker", worker_id, _event(worker_id, WorkerStatus.LOST, ""))

    def _identity(self, now: float) -> dict[str, Any]:
        host = socket.gethostname()
        return {"id": self.id, "host": host, "pid": os.getpid(), "sandbox": self.sandbox, "started_at": now}


def _event(worker_id: str, status: WorkerStatus, job_id: str) -> dict[str, str]:
    return {"id": worker_id, "status": str(status), "job": job_id}
