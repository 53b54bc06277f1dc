"""Share a store's durable records with other processes and machines, through a database.

The harness offers the database as an entry point, so that the plugin needs no driver. A store's folder keeps a copy of
everything that this machine has written or read; the database decides what exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from pytest_ssr.errors import MissingExtraError

GROUP = "pytest_ssr.storage"
DURABLE = frozenset(
    {
        *("artifacts", "spare", "wanted", "verdicts", "attempts", "campaigns", "shards"),
        *("suggestions", "validations", "rollouts", "episodes", "outcomes", "boards"),
    }
)
"""Folders of a store whose files are results. The others are caches of one machine, which any run can make again."""


class SharedRecords(Protocol):
    """Durable files of a store by their path in it, such as `rollouts/3f2a/patch.diff`."""

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write several files, all or none; an existing one is replaced. Raises StoreWriteError."""

    def put_folder(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Write local files, all or none, without reading them into memory where that is possible."""

    def get(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist; raises StoreError."""

    def digests(self, folder: str) -> dict[str, str]:
        """Return the paths of all files below a folder, sorted, with their SHA-256; raises StoreError."""

    def remove(self, path: str) -> None:
        """Remove a file if it exists; raises StoreWriteError."""

    def move(self, source: str, target: str) -> None:
        """Move all files of a folder; if the target exists, it stays as it is, and the source is removed."""

    def alone(self, name: str) -> AbstractContextManager[None]:
        """Hold the lock of a name for one process of all machines at a time."""


Connect = Callable[[Path, Mapping[str, object]], SharedRecords]
"""Takes the store's folder and the content of its `ssr-store.json`."""


def connect(root: Path, description: Mapping[str, object]) -> SharedRecords | None:
    """Return the records that a store shares, or None if it is a folder alone.

    Raises MissingExtraError if the store has a database and nothing is installed that can open it, StoreError if the
    database cannot be used.
    """
    if "database" not in description:
        return None
    for entry in entry_points(group=GROUP):
        opened: Connect = entry.load()
        return opened(root, description)
    raise MissingExtraError("the database of this store", "service")
