"""Open databases: SQLite and PostgreSQL, with the tables of this release."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, NoSuchModuleError, SQLAlchemyError

from pytest_ssr.errors import MissingExtraError, SettingsError, StoreError, os_error_advice
from pytest_ssr.interrupts import raise_if_stopped

FILE = "ssr.db"
_BUSY_S = 60
"""How long a writer of SQLite waits for the others."""
_WAIT = "busy_s"
"""The execution option with another time."""
_CONNECT_S = 10
_POLL_S = 0.1
_POSTGRES = {
    # Whatever the database's own is: from one of SQL_ASCII, texts would be bytes.
    "client_encoding": "utf8",
    "connect_timeout": _CONNECT_S,
    # A server that has vanished without a word is noticed before leases of jobs end.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
    # So is a client that was suspended in a transaction, whose locks would stop all others.
    "options": "-c idle_in_transaction_session_timeout=60s",
}
_SECRET = "password"
"""A part of the names of options of PostgreSQL that hold one."""
_INODE = "ssr_inode"
_opening = threading.Lock()
_engines: dict[URL, sa.Engine] = {}
_MIGRATIONS = Path(__file__).parent / "migrations"


def database_url(text: str, root: Path) -> URL:
    """Return the URL of a store's database. text: `sqlite` for a file in the store's folder, or a URL.

    Raises SettingsError if it is not a database that is supported, MissingExtraError if its driver is not installed.
    """
    if text == "sqlite":
        return URL.create("sqlite", database=str(root.absolute() / FILE))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise SettingsError("the database is not a URL; use postgresql://USER@HOST/NAME, or sqlite") from None
    if url.get_backend_name() == "sqlite":
        if not url.database or not Path(url.database).is_absolute():
            raise SettingsError(f"the database {shown(url)} needs an absolute path, as sqlite:////PATH/TO/FILE has")
        return URL.create("sqlite", database=url.database)
    if url.get_backend_name() != "postgresql":
        raise SettingsError(f"databases of the kind {url.drivername!r} are not supported; use postgresql, or sqlite")
    if "@" in (url.host or ""):
        # It is the end of the password, which is therefore not shown.
        raise SettingsError("the password of the database contains an @; write %40 instead")
    if find_spec("psycopg") is None:
        raise MissingExtraError("psycopg", "postgres")
    return url.set(drivername="postgresql+psycopg")


def absolute(text: str) -> str:
    """Return the address of a database with an absolute path, so that it means the same in every directory."""
    prefix = "sqlite:///"
    path = text.removeprefix(prefix)
    return f"{prefix}{Path(path).absolute()}" if path and path != text and path != ":memory:" else text


def open_engine(url: URL, *, create: bool = False) -> sa.Engine:
    """Return an engine whose tables are those of this release; older ones are migrated.

    create: make the database of SQLite and the tables if they do not exist. A process has one engine for each
    database, and so one pool of connections. Raises StoreError if the database cannot be reached, has no tables, or a
    newer release has written it.
    """
    with _opening:
        engine = _engines.get(url)
        if engine is None:
            engine = _create(url)
            try:
                with describing(url):
                    _prepare(engine, create=create)
            except BaseException:
                engine.dispose()
                raise
            _engines[url] = engine
    return engine


def _prepare(engine: sa.Engine, *, create: bool) -> None:
    if is_sqlite(engine) and create:
        _touch(Path(engine.url.database or ""))
    revision = _revision(engine)
    if revision is None and not create:
        raise StoreError(
            f"the database {shown(engine.url)} is empty; restore it from a backup, or remove `database` from "
            "ssr-store.json and run ssr store migrate, to begin with what is in the folder"
        )
    if revision != _head():
        with _alone_to_migrate(engine):
            upgrade(engine)


@atexit.register
def close_engines() -> None:
    """Close the connections of this process to all databases; what is opened next connects again."""
    with _opening:
        for engine in _engines.values():
            engine.dispose()
        _engines.clear()


def upgrade(engine: sa.Engine) -> None:
    """Create or migrate the tables, each step completely or not at all."""
    revision = _revision(engine)
    known = {r.revision for r in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}
    if revision is not None and revision not in known:
        raise StoreError(f"a newer release has written the database {shown(engine.url)}; install that release")
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextlib.contextmanager
def describing(url: URL) -> Iterator[None]:
    """Turn errors of a database into a StoreError that names it, without its password."""
    try:
        yield
    except NoSuchModuleError as error:
        raise SettingsError(f"the database {shown(url)} is not supported: {error}") from None
    except DBAPIError as error:
        cause = _without_secrets(url, str(error.orig).strip().partition("\n")[0])
        raise StoreError(f"the database {shown(url)} cannot be used: {cause}; what is finished is kept") from error
    except SQLAlchemyError as error:
        raise StoreError(f"the database {shown(url)} cannot be used: {type(error).__name__}") from error


def shown(url: URL) -> str:
    """Return a URL for people, without its passwords."""
    query = {name: "***" if _SECRET in name else value for name, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True)


def _without_secrets(url: URL, text: str) -> str:
    in_query = (str(value) for name, value in url.query.items() if _SECRET in name)
    for secret in filter(None, (url.password, *in_query)):
        text = text.replace(secret, "***")
    return text


def is_sqlite(engine: sa.Engine) -> bool:
    """Return whether an engine uses SQLite."""
    return engine.dialect.name == "sqlite"


def database_time(connection: sa.Connection) -> float:
    """Return the time in seconds since the epoch, by a clock that all users of the database share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.scalar(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))) or 0.0)


@contextlib.contextmanager
def advisory_lock(engine: sa.Engine, name: str) -> Iterator[None]:
    """Hold a lock of PostgreSQL that ends with its connection, as when its process is killed."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with engine.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        while not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(number))):
            raise_if_stopped()
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            with contextlib.suppress(SQLAlchemyError):
                connection.scalar(sa.select(sa.func.pg_advisory_unlock(number)))


def _touch(path: Path) -> None:
    try:
        path.touch()
    except OSError as error:
        raise StoreError(f"the database {path} cannot be created: {os_error_advice(error)}") from None


def _create(url: URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        path = url.database or ""

        def connect() -> sqlite3.Connection:
            # Without the mode, SQLite would make an empty database in the place of one that was removed. Threads each
            # have a connection: SQLite lets them read while one writes.
            address = f"file:{quote(path)}?mode=rw"
            return sqlite3.connect(address, uri=True, timeout=_BUSY_S, check_same_thread=False)

        engine = sa.create_engine(url, creator=connect)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "checkout", functools.partial(_refuse_replaced, path))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return sa.create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=40, connect_args=_POSTGRES)


def _set_up_sqlite(connection: Any, record: Any) -> None:
    record.info[_INODE] = _inode_of(connection.execute("PRAGMA database_list").fetchone()[2])
    # The driver starts transactions late, and not for changes of tables; `_begin_sqlite` starts them instead.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _refuse_replaced(path: str, _: Any, record: Any, __: Any) -> None:
    """Have a connection made again if its file was removed or replaced: what it writes would be lost."""
    if _inode_of(path) != record.info[_INODE]:
        raise DisconnectionError


def _inode_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _begin_sqlite(connection: sa.Connection) -> None:
    """Start a transaction; one that writes takes its lock now, because a reader cannot become a writer safely."""
    options = connection.get_execution_options()
    # Each time: connections are shared by engines that wait differently.
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1_000 * options.get(_WAIT, _BUSY_S))}")
    writes = not options.get("read_only", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def reading(engine: sa.Engine) -> sa.Engine:
    """Return the engine for transactions that only read, which wait for no writer."""
    return engine.execution_options(read_only=True)


def impatient(engine: sa.Engine, seconds: float) -> sa.Engine:
    """Return the engine for transactions that wait at most this long for other writers of SQLite."""
    return engine.execution_options(**{_WAIT: seconds})


def _revision(engine: sa.Engine) -> str | None:
    with reading(engine).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _head() -> str | None:
    return ScriptDirectory(str(_MIGRATIONS)).get_current_head()


@contextlib.contextmanager
def _alone_to_migrate(engine: sa.Engine) -> Iterator[None]:
    if not is_sqlite(engine):
        with advisory_lock(engine, "ssr-migration"):
            yield
        return
    database = engine.url.database
    if not database or database == ":memory:":
        yield
        return
    with Path(f"{database}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
