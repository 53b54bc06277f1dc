"""Look into stores that have a database."""

from __future__ import annotations

from collections.abc import Callable

from harness.database.records import DatabaseRecords
from pytest_ssr.storage.store import Store

MakeStore = Callable[[str], Store]
"""Creates a store of a kind: folder, sqlite or postgres."""


def records_of(store: Store) -> DatabaseRecords:
    """Return the database and the blobs of a store."""
    assert isinstance(store._shared, DatabaseRecords)
    return store._shared
