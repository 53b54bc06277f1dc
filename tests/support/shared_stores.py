"""Look into stores that have a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_ssr.storage.store import Store

if TYPE_CHECKING:
    from harness.database.records import DatabaseRecords

MakeStore = Callable[[str], Store]
"""Creates a store of a kind: folder, sqlite or postgres."""


def records_of(store: Store) -> DatabaseRecords:
    """Return the database and the blobs of a store."""
    from harness.database.records import DatabaseRecords

    assert isinstance(store._shared, DatabaseRecords)
    return store._shared


def execute(url: str, statement: str) -> None:
    """Execute a statement on a PostgreSQL server, outside of a transaction."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
