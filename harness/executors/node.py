"""Hold what units need on a machine of a cluster: a cache folder, and the projects and players that were opened.

The folder is a cache: what a unit stores is sent to the store of the run, or is written there directly if the store has
a database that all machines reach.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.database.sharing import share_store
from harness.executors.cache_room import CacheRoom
from harness.executors.pulled_images import PulledImages
from harness.executors.trees import TreeCopy
from harness.storage.rebuilt import TREES, using
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.storage.store import Store

_T = TypeVar("_T")
CACHE = "SSR_NODE_CACHE"
"""The folder for the caches of a machine's workers."""
_ARTIFACTS = ("artifacts", "spare")
_OF_ONE_UNIT = (*_ARTIFACTS, "rollouts")
"""Kinds of records whose folders belong to one unit."""


def cache_folder() -> Path:
    """Return the folder for the caches of this machine's workers, by its name: machines may share a home."""
    given = os.environ.get(CACHE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "pytest-ssr" / "cluster" / socket.gethostname()


class CollectedRecords:
    """The durable files that one unit writes; see SharedRecords. No other unit's files exist for it."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def put(self, files: Mapping[str, bytes]) -> None:
        """Add or replace files."""
        self._files.update(files)

    def put_folder(self, folder: Path, files: Mapping[str, Path]) -> None:
        """Add or replace files, read from the disk."""
        self._files.update({name: path.read_bytes() for name, path in files.items()})

    def get(self, path: str) -> bytes | None:
        """Return a file that this unit has written, or None."""
        return self._files.get(path)

    def digests(self, folder: str) -> dict[str, str]:
        """Return the paths of all files below a folder, sorted, with their SHA-256."""
        below = {path: data for path, data in sorted(self._files.items()) if path.startswith(f"{folder}/")}
        return {path: hashlib.sha256(data).hexdigest() for path, data in below.items()}

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        self._files.pop(path, None)

    def move(self, source: str, target: str) -> None:
        """Move all files of a folder."""
        for path in [p for p in self._files if p.startswith(f"{source}/")]:
            self._files[target + path.removeprefix(source)] = self._files.pop(path)

    def alone(self, name: str) -> AbstractContextManager[None]:
        """Return at once: the executor starts each unit once at a time."""
        return contextlib.nullcontext()

    def take(self) -> dict[str, bytes]:
        """Return all files, and forget them."""
        files, self._files = self._files, {}
        return files


@dataclass(slots=True)
class NodeState:
    """What the one who distributes units knows of a machine."""

    id: str
    name: str
    slots: int
    done: int = 0
    """Units with a result."""
    lost: int = 0
    """Units that lost their worker."""
    faults: int = 0
    """Units, and starts of workers, that failed because of the machine."""
    failed_since: dict[str, bool] = field(default_factory=dict)
    """The units that failed since the last one with a result, and whether another node had a result of them."""
    cause: str = ""
    """Why the last of them failed."""
    seconds: float = 0.0
    """Seconds of the units with a result."""
    has_left: bool = False
    """Whether it is no longer part of the cluster."""
    drained: str = ""
    """Why the node gets no more units; empty if it does."""

    def to_json(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {**asdict(self), "failed_since": len(self.failed_since)}


@dataclass(slots=True)
class Node:
    """One worker's view of its machine."""

    store: Store
    """The cache, as a store."""
    slots: int = 1
    """How many workers this machine has."""
    workers: int = 1
    """How many workers all machines had when this one was started."""
    collected: CollectedRecords | None = None
    """What the current unit has written; None if the store has a database."""
    _opened: dict[Hashable, Any] = field(default_factory=dict)
    _using: ExitStack = field(default_factory=ExitStack)
    """Holds the trees that this worker uses."""
    _room: CacheRoom | None = None

    @classmethod
    def open(cls, folder: Path, slots: int, workers: int, description: Mapping[str, object]) -> Node:
        """Open a cache folder.

        slots, workers: see the fields. description: names the database and the blobs of the run's store, if it has
        them.
        """
        if description:
            database, blobs = str(description["database"]), str(description.get("blobs", ""))
            return cls(share_store(folder, database=database, blobs=blobs), slots, workers)
        collected = CollectedRecords()
        return cls(Store(folder, shared=collected), slots, workers, collected)

    def use_tree(self, copy: TreeCopy) -> Snapshot:
        """Return a snapshot whose tree is in the cache; trees that no worker uses make room for it.

        Raises StoreWriteError if it cannot be written, for example because the disk is full.
        """
        self._using.enter_context(using(self.store, TREES, copy.name))
        # One worker of a machine fetches it, and it is never replaced while another uses it.
        with self.store.alone(f"place-{copy.name}"):
            if not (self.store.trees / copy.name).is_dir():
                self.make_room()
            return copy.place(self.store.trees)

    @property
    def images(self) -> PulledImages:
        """The images that workers of this machine have pulled."""
        return PulledImages(self.store.root.with_name("images"))

    def make_room(self) -> None:
        """Remove what was used longest ago, until the caches of this machine are within their limit."""
        if self._room is None:
            self._room = CacheRoom(self.store.root, self.images)
        self._room.make()

    def once(self, key: Hashable, open_: Callable[[], _T]) -> _T:
        """Return what was opened under a key, opening it at the first call."""
        if key not in self._opened:
            self._opened[key] = open_()
        value: _T = self._opened[key]
        return value

    def add_cached(self, files: Mapping[str, bytes]) -> None:
        """Make some records of the cache the same as on another machine, such as a baseline."""
        for path, data in files.items():
            kind, _, name = path.rpartition("/")
            if self.store.file(kind, name) != data:
                self.store.put_file(kind, name, data)

    def take_files(self) -> dict[str, bytes]:
        """Return the durable files that were written since the last call, and remove them from the cache."""
        if self.collected is None:
            return {}
        files = self.collected.take()
        for path in files:
            kind, name, *rest = path.split("/")
            if kind in _OF_ONE_UNIT and rest:
                shutil.rmtree(self.store.root / kind / name, ignore_errors=True)
            else:
                # Other workers of this machine write into the same folder.
                (self.store.root / path).unlink(missing_ok=True)
        return files


def keep_files(store: Store, files: Mapping[str, bytes]) -> None:
    """Write the durable files of a unit into the store of the run; an artifact is complete or absent.

    Raises StoreWriteError; writing them again is harmless.
    """
    artifacts = {path: data for path, data in files.items() if path.partition("/")[0] in _ARTIFACTS}
    for folder in sorted({path.rpartition("/")[0] for path in artifacts}):
        with tempfile.TemporaryDirectory() as directory:
            for path, data in artifacts.items():
                if path.startswith(f"{folder}/"):
                    Path(directory, path.rpartition("/")[2]).write_bytes(data)
            kind, _, artifact_id = folder.rpartition("/")
            store.put_artifact(artifact_id, read_artifact(Path(directory)), spare=kind == "spare")
    for path, data in files.items():
        if path not in artifacts:
            kind, _, name = path.rpartition("/")
            store.put_file(kind, name, data)
