"""Find what keeps a service from doing its work."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from harness.database.engine import describing, reading
from harness.database.schema import jobs
from harness.service.job import JobStatus
from pytest_ssr.storage.free_space import is_full


class Trouble(StrEnum):
    """What is wrong with a service that still answers."""

    DISK_FULL = "disk-full"
    """The disk of the store has no space left: no result can be stored."""
    STORE_AWAY = "store-away"
    """The folder of the store cannot be reached."""
    JOBS_WAIT = "jobs-wait"
    """Jobs wait after a fault of the database, of the files or of a sandbox."""

    @property
    def text(self) -> str:
        """What it means for people."""
        return _TEXTS[self]

    @property
    def stops_writing(self) -> bool:
        """Whether nothing can be stored."""
        return self is not Trouble.JOBS_WAIT


_TEXTS = {
    Trouble.DISK_FULL: "The disk of the store is full: results cannot be stored, and jobs wait until there is space.",
    Trouble.STORE_AWAY: "The folder of the store cannot be reached: results can neither be read nor stored.",
    Trouble.JOBS_WAIT: "Jobs wait after a fault of the infrastructure; they begin again by themselves.",
}


def troubles(engine: sa.Engine, folder: Path) -> Sequence[Trouble]:
    """Return what is wrong. folder: of the store. Raises StoreError if the database does not answer."""
    found = []
    try:
        if is_full(folder):
            found.append(Trouble.DISK_FULL)
    except OSError:
        found.append(Trouble.STORE_AWAY)
    waits = sa.exists().where(jobs.c.status == JobStatus.QUEUED, jobs.c.faults > 0)
    with describing(engine.url), reading(engine).connect() as connection:
        if connection.scalar(sa.select(waits)):
            found.append(Trouble.JOBS_WAIT)
    return found
