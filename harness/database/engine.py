"""Open databases: SQLite and PostgreSQL, with the tables of this release."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from pytest_ssr.errors import MissingExtraError, SettingsError, StoreError
from pytest_ssr.interrupts import raise_if_stopped

FILE = "ssr.db"
_BUSY_S = 60
"""How long a writer of SQLite waits for the others."""
_CONNECT_S = 10
_POLL_S = 0.1
_POSTGRES = {
    "connect_timeout": _CONNECT_S,
    # A server that has vanished without a word is noticed before leases of jobs end.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
    # So is a client that was suspended in a transaction, whose locks would stop all others.
    "options": "-c idle_in_transaction_session_timeout=60s",
}
_opening = threading.Lock()
_engines: dict[URL, sa.Engine] = {}
_MIGRATIONS = Path(__file__).parent / "migrations"


def database_url(text: str, root: Path) -> URL:
    """Return the URL of a store's database. text: `sqlite` for a file in the store's folder, or a URL.

    Raises SettingsError if it is not a database that is supported, MissingExtraError if its driver is not installed.
    """
    if text == "sqlite":
        return URL.create("sqlite", database=str(root / FILE))
    try:
        url = make_url(text)
    except ArgumentError:
        raise SettingsError("the database is not a URL; use postgresql://USER@HOST/NAME, or sqlite") from None
    if url.get_backend_name() == "sqlite":
        return url.set(drivername="sqlite")
    if url.get_backend_name() != "postgresql":
        raise SettingsError(f"databases of the kind {url.drivername!r} are not supported; use postgresql, or sqlite")
    if find_spec("psycopg") is None:
        raise MissingExtraError("psycopg", "postgres")
    return url.set(drivername="postgresql+psycopg")


def open_engine(url: URL) -> sa.Engine:
    """Return an engine whose tables are those of this release; they are created or migrated if they are not.

    A process has one engine for each database, and so one pool of connections. Raises StoreError if the database
    cannot be reached, or a newer release has written it.
    """
    with _opening:
        engine = _engines.get(url)
        if engine is None:
            with describing(url):
                engine = _create(url)
                if _revision(engine) != _head():
                    with _alone_to_migrate(engine):
                        upgrade(engine)
            _engines[url] = engine
    return engine


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
        cause = str(error.orig).strip().partition("\n")[0]
        raise StoreError(f"the database {shown(url)} cannot be used: {cause}; what is finished is kept") from error
    except SQLAlchemyError as error:
        raise StoreError(f"the database {shown(url)} cannot be used: {type(error).__name__}") from error


def shown(url: URL) -> str:
    """Return a URL for people, without its password."""
    return url.render_as_string(hide_password=True)


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


def _create(url: URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        # Threads each have a connection: SQLite lets them read while one writes.
        engine = sa.create_engine(url, connect_args={"timeout": _BUSY_S, "check_same_thread": False})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return sa.create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=40, connect_args=_POSTGRES)


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # The driver starts transactions late, and not for changes of tables; `_begin_sqlite` starts them instead.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Start a transaction; one that writes takes its lock now, because a reader cannot become a writer safely."""
    writes = not connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def reading(engine: sa.Engine) -> sa.Engine:
    """Return the engine for transactions that only read, which wait for no writer."""
    return engine.execution_options(read_only=True)


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
