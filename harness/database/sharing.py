"""Give a store a database, and read what is stored in one as files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from harness.storage.atomic_write import write_bytes
from pytest_ssr.errors import (
    DamagedTreeError,
    MissingExtraError,
    SettingsError,
    StoreError,
    StoreWriteError,
    os_error_advice,
)
from pytest_ssr.options import STORE_MARK
from pytest_ssr.records.decoding import json_object
from pytest_ssr.storage.shared import DURABLE, SharedRecords
from pytest_ssr.storage.shared_trees import trees_of_results
from pytest_ssr.storage.store import STORE_VERSION, Store

_PRIVATE_MODE = 0o600
"""The description may hold the password of a database."""


def has_database(root: Path) -> bool:
    """Return whether a store has a database; False for a folder that is not a store."""
    return "database" in description_of(root)


def connect(root: Path, description: Mapping[str, object]) -> SharedRecords:
    """Open the database of a store; the plugin calls it by its entry point `pytest_ssr.storage`.

    Raises MissingExtraError if the packages for it are not installed.
    """
    require_packages()
    from harness.database import records

    return records.connect(root, description)


def share_store(root: Path, *, database: str = "", blobs: str = "") -> Store:
    """Give a store a database, unless it has one, and open it; a new store is created.

    database: `sqlite` or a URL, by default that of the store, or sqlite; blobs: as in `Blobs`, by default those of the
    store. Results that it has already are not in the database until they are migrated. Raises SettingsError if the
    store has another database or other blobs, StoreError if either cannot be used.
    """
    require_packages()
    from harness.database import blobs as blobs_module
    from harness.database import engine, records

    store = Store(root)
    description = description_of(root)
    wanted = {"database": engine.absolute(database), "blobs": blobs_module.absolute(blobs)}
    if "database" in description:
        if any(value and value != description.get(name) for name, value in wanted.items()):
            raise SettingsError(
                f"the store {root} already has another database or other blobs; remove --database and --blobs"
            )
        return store
    wanted["database"] = wanted["database"] or "sqlite"
    # Used first: a store that names a database that cannot be used could not be opened at all.
    records.connect(root, wanted, create=True).blobs.probe()
    path = root / STORE_MARK
    try:
        content = json.dumps({"store_version": STORE_VERSION, **wanted}).encode() + b"\n"
        write_bytes(path, content, mode=_PRIVATE_MODE)
    except OSError as error:
        raise StoreWriteError(f"cannot write {path}: {os_error_advice(error)}") from None
    return Store(root)


def require_packages() -> None:
    """Raise MissingExtraError unless the packages of the service are installed."""
    for module, package in (("sqlalchemy", "SQLAlchemy"), ("alembic", "Alembic"), ("fastapi", "FastAPI")):
        if find_spec(module) is None:
            raise MissingExtraError(package, "service")


def fetch_all(root: Path) -> None:
    """Copy the results that only the database of a store has into its folder; one without a database stays as it is.

    Raises StoreError if the database cannot be used.
    """
    if has_database(root):
        store = Store(root)
        for kind in sorted(DURABLE):
            store.fetch(kind)


def fetch_trees(root: Path) -> None:
    """Copy the trees of a store's artifacts and campaigns into its folder, except unshared and damaged ones.

    Raises StoreError if the database cannot be used.
    """
    if has_database(root):
        trees = Store(root).shared_trees
        for tree_hash in trees_of_results(root):
            # Its artifacts are left out of what needs the tree; `ssr store check` lists it.
            with contextlib.suppress(DamagedTreeError):
                trees.fetch(tree_hash)


def description_of(root: Path) -> dict[str, object]:
    """Return the content of a store's `ssr-store.json`; empty without the file. Raises StoreError if it is damaged."""
    path = root / STORE_MARK
    try:
        description = json_object(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    if description is None:
        raise StoreError(f"{path} is damaged; restore it from a backup")
    return description
