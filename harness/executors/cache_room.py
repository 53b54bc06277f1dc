"""Keep the caches of a machine under a limit: what was used longest ago goes first, and nothing that a worker uses.

Trees are fetched again when they are needed, and what was made for rows is made again: clones, environments, and images
that workers have pulled. The limit is for all runs of a machine together.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.executors.pulled_images import PulledImages
from harness.storage.rebuilt import KINDS, lock_of
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import STORE_MARK
from pytest_ssr.sandbox.filesystem.workdirs import disk_bytes
from pytest_ssr.storage import locks

CACHE_BYTES = "SSR_NODE_CACHE_BYTES"
"""Bytes that the caches of a machine keep."""
_DEFAULT_CACHE_BYTES = 20 * 1024**3
_REMOVED = ".removed-"
_RUN = re.compile(r"[0-9a-f]{24}")
"""The name of the cache of another run; other folders are not ours."""


@dataclass(frozen=True, slots=True)
class _Cached:
    used_at: float
    """When it was used last; its file system has one clock."""
    size: int
    root: Path
    """The folder of its lock."""
    lock: str
    remove: Callable[[], bool]
    """Removes it, and returns whether that was possible."""


def cache_limit() -> int:
    """Return the limit; raises SettingsError if it is not a number of bytes."""
    given = os.environ.get(CACHE_BYTES) or str(_DEFAULT_CACHE_BYTES)
    if not given.isdecimal():
        raise SettingsError(f"{CACHE_BYTES}={given} is not a number of bytes")
    return int(given)


class CacheRoom:
    """The caches of a machine, as one of its workers sees them."""

    def __init__(self, own: Path, images: PulledImages) -> None:
        """own: the cache of this run, beside which the other runs have theirs."""
        self._own, self._images = own, images
        self._sizes: dict[tuple[Path, int], int] = {}

    def make(self) -> None:
        """Remove what was used longest ago, until the rest is within the limit."""
        limit = cache_limit()
        found = sorted([*self._folders(), *self._pulled()], key=lambda cached: cached.used_at)
        total = sum(cached.size for cached in found)
        for cached in found:
            if total <= limit:
                return
            with _unused(cached.root, cached.lock) as free:
                if free and cached.remove():
                    total -= cached.size

    def _folders(self) -> list[_Cached]:
        found, sizes = [], dict[tuple[Path, int], int]()
        for root, kind in itertools.product(self._roots(), KINDS):
            for folder in _folders_in(root / kind):
                with contextlib.suppress(FileNotFoundError):
                    status = folder.stat()
                    # Whoever uses it changes its time, so that one that was being written is measured again.
                    stamp = (folder, status.st_mtime_ns)
                    size = sizes[stamp] = self._sizes.get(stamp) or disk_bytes(folder)
                    remove = partial(_remove, folder)
                    found.append(_Cached(status.st_mtime, size, root, lock_of(kind, folder.name), remove))
        self._sizes = sizes
        return found

    def _pulled(self) -> list[_Cached]:
        images = self._images
        return [
            _Cached(image.used_at, image.size, images.folder, image.lock, partial(images.remove, image))
            for image in images.kept()
        ]

    def _roots(self) -> list[Path]:
        beside = [p for p in self._own.parent.iterdir() if _RUN.fullmatch(p.name) and (p / STORE_MARK).is_file()]
        return [self._own, *(p for p in beside if p != self._own)]


def _folders_in(parent: Path) -> list[Path]:
    """Return the folders in a folder, without those that are being written; the rest of removed ones is removed."""
    try:
        found = [p for p in parent.iterdir() if p.is_dir()]
    except FileNotFoundError:
        return []
    for folder in found:
        if folder.name.startswith(_REMOVED):
            # A worker that is gone has not finished it.
            shutil.rmtree(folder, ignore_errors=True)
    return [p for p in found if not p.name.startswith(".")]


def _remove(folder: Path) -> bool:
    removed = folder.with_name(f"{_REMOVED}{secrets.token_hex(4)}")
    try:
        # At once, so that nobody uses a part of it as the whole.
        folder.rename(removed)
    except OSError:
        return False
    shutil.rmtree(removed, ignore_errors=True)
    return True


@contextlib.contextmanager
def _unused(root: Path, lock: str) -> Iterator[bool]:
    """Yield whether nobody uses what a lock stands for; if so, those that want to wait for the end of the block."""
    path = root / locks.FOLDER / lock
    try:
        path.parent.mkdir(exist_ok=True)
        file = path.open("ab")
    except OSError:
        yield False
        return
    with file:
        yield locks.try_alone(file.fileno())
