"""Share a store's records through a database and blobs; `pytest_ssr.storage.shared` describes what for."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from harness.database import indexing
from harness.database.blobs import Blobs
from harness.database.engine import advisory_lock, database_url, describing, is_sqlite, open_engine, reading, shown
from harness.database.events import add_event
from harness.database.fitting import cleaned
from harness.database.schema import entries
from harness.database.sharing import description_of
from pytest_ssr.errors import StoreError, StoreWriteError
from pytest_ssr.injectors.git_history import run_git
from pytest_ssr.options import STORE_MARK
from pytest_ssr.storage.shared import DURABLE
from pytest_ssr.storage.shared_trees import TREES

VARIABLE = "SSR_DATABASE"
_ID_PATH = "database/id"
"""An entry that is no result: its kind is not one of those that are listed."""
SHARED = DURABLE | {TREES, "exports"}
"""Folders of a store whose files are in its database: results, the trees they apply to, and what jobs have exported."""
_RECORD = ".json"
_LONGEST_PATH, _LONGEST_KIND = 512, 32
"""Characters; see the columns of `entries`."""


def connect(root: Path, description: Mapping[str, object], *, create: bool = False) -> DatabaseRecords:
    """Open the database of a store. description: the content of its `ssr-store.json`; create: as in `open_engine`."""
    database, blobs = description.get("database"), description.get("blobs", "")
    if not isinstance(database, str) or not isinstance(blobs, str):
        raise StoreError(f"{root}/ssr-store.json is damaged: database and blobs should be strings")
    if run_git(root, "ls-files", "--error-unmatch", STORE_MARK)[0]:
        # Whoever wrote the project has chosen the server, which would receive the results and perhaps a password.
        raise StoreError(
            f"{root / STORE_MARK} names a database and is in the project's own repository; remove it from there "
            "(git rm --cached) if the database is yours, or choose another store with --store"
        )
    return open_records(root, os.environ.get(VARIABLE) or database, blobs, create=create)


def open_records(root: Path, database: str, blobs: str, *, create: bool = False) -> DatabaseRecords:
    """Open a database and blobs by their addresses; those in the folder are below `root`."""
    engine = open_engine(database_url(database, root), create=create)
    return DatabaseRecords(engine, Blobs(blobs, root, _id_of(engine)))


def records_of(root: Path) -> DatabaseRecords:
    """Return the shared records of a store that has a database."""
    return connect(root, description_of(root))


class DatabaseRecords:
    """Files by path: records in JSON are rows of a database, other files are blobs."""

    def __init__(self, engine: sa.Engine, blobs: Blobs) -> None:
        self.engine, self.blobs = engine, blobs

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write several files, all or none; an existing one is replaced."""
        rows = [self._row(path, data) for path, data in files.items()]
        self._put(rows, files, {row["digest"]: files[row["path"]] for row in rows if row["data"] is None})

    def put_again(self, path: str, data: bytes) -> None:
        """Write a file whose content is missing or damaged."""
        if not path.endswith(_RECORD):
            # A blob that is there is not written again, whatever it holds.
            self.blobs.remove(hashlib.sha256(data).hexdigest())
        self.put({path: data})

    def put_folder(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Write local files, all or none."""
        rows, records = [], {}
        blobs: dict[str, bytes | Path] = {}
        for path, local in files.items():
            if path.endswith(_RECORD):
                records[path] = local.read_bytes()
                rows.append(self._row(path, records[path]))
            else:
                digest, size = self.blobs.put_file(local)
                rows.append(_entry(path, digest, size, None))
                blobs[digest] = local
                # Indexing reads it only if it needs to.
                records[path] = b""
        self._put(rows, records, blobs, folder)

    def get(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        row = self._stored(path)
        if row is None:
            return None
        return bytes(row.data) if row.data is not None else self.blobs.get(row.digest)

    def inspect(self, path: str) -> tuple[str, bytes | None] | None:
        """Return the recorded SHA-256 of a file and its content, whatever that is; None if there is no such file.

        The content is None if it is missing.
        """
        row = self._stored(path)
        if row is None:
            return None
        return row.digest, bytes(row.data) if row.data is not None else self.blobs.read(row.digest)

    def digests(self, folder: str) -> dict[str, str]:
        """Return the paths of all files below a folder, sorted, with their SHA-256."""
        statement = sa.select(entries.c.path, entries.c.digest).where(_below(folder)).order_by(entries.c.path)
        with describing(self.engine.url), reading(self.engine).connect() as connection:
            found = {row.path: row.digest for row in connection.execute(statement)}
        for path in found:
            if not is_possible(path):
                # Files are copied to their paths: one such as `rollouts/../../x` would leave the store's folder.
                raise StoreError(
                    f"the database {shown(self.engine.url)} has {path[:100]!r}, which is not a file of a store"
                )
        return found

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with self._writing() as connection:
            connection.execute(sa.delete(entries).where(entries.c.path == path))
            indexing.remove(connection, path)

    def move(self, source: str, target: str) -> None:
        """Move all files of a folder; if the target exists, it stays as it is, and the source is removed."""
        with self._writing() as connection:
            rows = connection.execute(sa.select(entries.c.path).where(_below(source))).all()
            if not rows:
                return
            if connection.execute(sa.select(entries.c.path).where(_below(target)).limit(1)).first():
                connection.execute(sa.delete(entries).where(_below(source)))
                rows = []
            for row in rows:
                path = target + row.path.removeprefix(source)
                values = {"path": path, "kind": path.partition("/")[0]}
                connection.execute(sa.update(entries).where(entries.c.path == row.path).values(values))
            indexing.move(connection, source, target)

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold the lock of a name; with SQLite, the lock in the store's folder is enough."""
        if is_sqlite(self.engine):
            yield
            return
        with describing(self.engine.url), advisory_lock(self.engine, name):
            yield

    def _stored(self, path: str) -> Any:
        statement = sa.select(entries.c.data, entries.c.digest).where(entries.c.path == path)
        with describing(self.engine.url), reading(self.engine).connect() as connection:
            return connection.execute(statement).one_or_none()

    def _row(self, path: str, data: bytes) -> dict[str, Any]:
        if path.endswith(_RECORD):
            return _entry(path, hashlib.sha256(data).hexdigest(), len(data), data)
        return _entry(path, self.blobs.put(data), len(data), None)

    def _put(
        self,
        rows: Sequence[Mapping[str, Any]],
        files: Mapping[str, bytes],
        blobs: Mapping[str, bytes | Path],
        folder: Path | None = None,
    ) -> None:
        if not rows:
            return
        sizes = {row["digest"]: row["size"] for row in rows}
        with self._writing() as connection:
            indexing.replace_rows(connection, entries, rows, key=["path"])
            for digest, content in blobs.items():
                # It may have existed unused, and have been collected since; from here on the rows protect it.
                self.blobs.keep(digest, sizes[digest], content)
            for change in indexing.add(connection, files, folder):
                add_event(connection, change.kind, change.subject, change.data)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        try:
            with describing(self.engine.url), self.engine.begin() as connection:
                yield connection
        except StoreWriteError:
            raise
        except StoreError as error:
            raise StoreWriteError(str(error)) from error


def is_possible(path: str) -> bool:
    """Return whether a file at a path of a store's folder can be an entry of a database."""
    parts = path.split("/")
    named = cleaned(path) == path and all(part not in ("", ".", "..") for part in parts)
    return named and len(path) <= _LONGEST_PATH and len(parts[0]) <= _LONGEST_KIND


def _id_of(engine: sa.Engine) -> str:
    """Return the id of a database, which it keeps if it is moved or copied; it has one from its first use on."""
    statement = sa.select(entries.c.data).where(entries.c.path == _ID_PATH)
    with describing(engine.url), reading(engine).connect() as connection:
        found: bytes | None = connection.scalar(statement)
    if found is None:
        row = _entry(_ID_PATH, "", 0, secrets.token_hex(8).encode())
        with describing(engine.url), engine.begin() as connection:
            # Another process may have been first.
            indexing.add_row(connection, entries, row)
            found = connection.execute(statement).scalar_one()
    return bytes(found).decode()


def _entry(path: str, digest: str, size: int, data: bytes | None) -> dict[str, Any]:
    if not is_possible(path):
        raise StoreWriteError(f"{path[:100]!r} cannot be the path of a result: too long, or not text of UTF-8")
    return {
        "path": path,
        "kind": path.partition("/")[0],
        "digest": digest,
        "size": size,
        "data": data,
        "stored_at": time.time(),
    }


def _below(folder: str) -> sa.ColumnElement[bool]:
    # A range, which uses the index of the primary key; `/` is followed by `0`.
    return sa.and_(entries.c.path > f"{folder}/", entries.c.path < f"{folder}0")
