"""Mark what a store can fetch or build again as used, so that a machine of a cluster removes other things first.

The time of such a folder is that of its last use. See `harness.executors.cache_room`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pytest_ssr.storage.store import Store

TREES, ENVIRONMENTS, REPOSITORIES = "trees", "environments", "repositories"
KINDS = (TREES, ENVIRONMENTS, REPOSITORIES)
"""Folders of a store whose entries can be fetched or built again."""


def lock_of(kind: str, name: str) -> str:
    """Return the name of the lock that those hold together who use an entry."""
    return f"using-{kind}-{name}"


@contextlib.contextmanager
def using(store: Store, kind: str, name: str) -> Iterator[Path]:
    """Yield the path of an entry, which may not exist yet, and which nobody removes meanwhile."""
    path = store.root / kind / name
    with store.in_use(lock_of(kind, name)):
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
        yield path
