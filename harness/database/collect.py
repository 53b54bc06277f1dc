"""Remove what a store with a database no longer needs, and measure what it holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from harness.database.engine import database_time, describing, is_sqlite, reading
from harness.database.events import remove_events
from harness.database.records import SHARED, DatabaseRecords
from harness.database.schema import entries
from pytest_ssr.storage.shared import DURABLE

EVENTS_KEPT_S = 7 * 24 * 3600
"""Age of events that no reader resumes from any more."""
_WRITING_S = 3600
"""Longest time that a writer may take for one file; a younger one is not removed even without a grace time."""
_BATCH = 100
"""Blobs that are removed while writers wait; an object store takes about a second for them."""


@dataclass(frozen=True, slots=True)
class Collection:
    """What was removed, or would be."""

    blobs: int
    bytes: int
    recent: int
    """Blobs that nothing refers to and that are younger than the grace time."""
    unfinished: int
    """Files of writers that were killed."""
    events: int


@dataclass(frozen=True, slots=True)
class Part:
    """Files of one kind."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a store holds."""

    results: tuple[Part, ...]
    """By kind, as the database has them, or the folder if there is no database."""
    folders: tuple[Part, ...]
    """What is in the store's folder on this machine: copies of results, and caches."""
    blobs: Part | None
    """The files apart from the database; None without a database. They may be a part of `folders`."""
    database_bytes: int


def collect(
    records: DatabaseRecords, *, grace_s: float, dry_run: bool = False, progress: Callable[[str], None]
) -> Collection:
    """Remove blobs that no entry refers to, and old events.

    Writers put a blob before its row; those of the last grace time are kept, so that writers do not write them twice.
    A blob that a writer is about to refer to is not lost in any case: `DatabaseRecords` checks it again in its
    transaction, and no such transaction runs while blobs are removed. Raises StoreError.
    """
    now = records.blobs.now()
    oldest = now - grace_s
    sizes = records.blobs.sizes()
    with describing(records.engine.url), reading(records.engine).connect() as connection:
        referred = set(connection.scalars(sa.select(entries.c.digest).where(entries.c.data.is_(None)).distinct()))
    unused = sorted(sizes.keys() - referred)
    old = [digest for digest in unused if sizes[digest][1] <= oldest]
    removed: list[str] = []
    for batch in _batches(old):
        removed += batch if dry_run else _remove_unused(records, batch)
        progress(f"{len(removed)} of {len(old)} files")
    abandoned = min(oldest, now - _WRITING_S)
    unfinished = [path for path, begun_at in records.blobs.unfinished() if begun_at <= abandoned]
    for path in () if dry_run else unfinished:
        path.unlink(missing_ok=True)
    events = _remove_events(records, dry_run=dry_run)
    size = sum(sizes[digest][0] for digest in removed)
    return Collection(len(removed), size, len(unused) - len(old), len(unfinished), events)


def measure(root: Path, records: DatabaseRecords | None) -> Sizes:
    """Measure a store; raises StoreError. records: None if it has no database."""
    folders = tuple(_measured(path) for path in sorted(root.iterdir()) if path.is_dir())
    if records is None:
        return Sizes(tuple(part for part in folders if part.name in DURABLE), folders, None, 0)
    count, size = sa.func.count(), sa.func.sum(entries.c.size)
    is_shared = entries.c.kind.in_(SHARED)
    statement = sa.select(entries.c.kind, count, size).where(is_shared).group_by(entries.c.kind)
    with describing(records.engine.url), reading(records.engine).connect() as connection:
        rows = connection.execute(statement.order_by(entries.c.kind)).all()
        database_bytes = int(connection.scalar(sa.text(_size_query(records.engine))) or 0)
    sizes = records.blobs.sizes()
    blobs = Part(records.blobs.shown, len(sizes), sum(size for size, _ in sizes.values()))
    return Sizes(tuple(Part(kind, count, int(size)) for kind, count, size in rows), folders, blobs, database_bytes)


def _remove_unused(records: DatabaseRecords, digests: Sequence[str]) -> list[str]:
    """Remove blobs that still nothing refers to, while nothing can begin to; return which."""
    with describing(records.engine.url), records.engine.begin() as connection:
        if not is_sqlite(records.engine):
            # A transaction of SQLite excludes other writers anyway.
            connection.execute(sa.text("LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE"))
        statement = sa.select(entries.c.digest).where(entries.c.digest.in_(digests), entries.c.data.is_(None))
        referred = set(connection.scalars(statement))
        unused = [digest for digest in digests if digest not in referred]
        for digest in unused:
            # An error if PostgreSQL has ended the transaction, and with it the lock, while an object store was slow.
            connection.execute(sa.text("SELECT 1"))
            records.blobs.remove(digest)
    return unused


def _remove_events(records: DatabaseRecords, *, dry_run: bool) -> int:
    with describing(records.engine.url), records.engine.connect() as connection:
        count = remove_events(connection, before=database_time(connection) - EVENTS_KEPT_S)
        # Counted by removing them, so that a dry run gives the same number.
        connection.rollback() if dry_run else connection.commit()
    return count


def _size_query(engine: sa.Engine) -> str:
    if is_sqlite(engine):
        return "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    return "SELECT pg_database_size(current_database())"


def _measured(folder: Path) -> Part:
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            # A run may remove its files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(os.path.join(parent, name))
                sizes[found.st_dev, found.st_ino] = found.st_size
    return Part(folder.name, len(sizes), sum(sizes.values()))


def _batches(digests: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(digests), _BATCH):
        yield list(digests[start : start + _BATCH])
