"""Give a store a database, and read what is stored in one as files."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from harness.storage.atomic_write import write_bytes
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.project.snapshot import STORE_MARK
from pytest_ssr.storage.shared import DURABLE
from pytest_ssr.storage.store import STORE_VERSION, Store

_PRIVATE_MODE = 0o600
"""The description may hold the password of a database."""


def has_database(root: Path) -> bool:
    """Return whether a store has a database; False for a folder that is not a store."""
    return "database" in _description(root)


def share_store(root: Path, *, database: str = "sqlite", blobs: str = "") -> Store:
    """Give a store a database, unless it has one, and open it; a new store is created.

    Results that it has already are not in the database until they are migrated. Raises SettingsError if the store has
    another database.
    """
    if find_spec("sqlalchemy") is None:
        raise MissingExtraError("SQLAlchemy", "service")
    Store(root)
    wanted = {"database": database, "blobs": blobs}
    description = _description(root)
    if "database" in description:
        if {name: description.get(name) for name in wanted} != wanted:
            raise SettingsError(
                f"the store {root} already has another database or other blobs; remove --database and --blobs"
            )
        return Store(root)
    from harness.database.records import connect

    # Opened first: a store that names a database that cannot be used could not be opened at all.
    connect(root, wanted).engine.dispose()
    path = root / STORE_MARK
    try:
        write_bytes(path, json.dumps({"store_version": STORE_VERSION, **wanted}).encode() + b"\n")
        path.chmod(_PRIVATE_MODE)
    except OSError as error:
        raise StoreWriteError(f"cannot write {path}: {os_error_advice(error)}") from None
    return Store(root)


def fetch_all(root: Path) -> None:
    """Copy the results that only the database of a store has into its folder; a store without one stays as it is.

    Raises StoreError if the database cannot be used.
    """
    if has_database(root):
        store = Store(root)
        for kind in sorted(DURABLE):
            store.fetch(kind)


def _description(root: Path) -> dict[str, object]:
    try:
        data = json.loads((root / STORE_MARK).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
