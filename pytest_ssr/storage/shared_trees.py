"""Share the trees of artifacts and campaigns: one archive for each, whose content must have the hash in its name.

An artifact alone says little without the files it applies to: exports need them, on machines that never saw the
project, too. So does the page of a campaign, which shows the source.
"""

from __future__ import annotations

import re
from pathlib import Path

from pytest_ssr.errors import StoreError, os_error_advice
from pytest_ssr.project.snapshot import is_complete
from pytest_ssr.records.artifact import INFO
from pytest_ssr.records.decoding import json_object
from pytest_ssr.storage.shared import SharedRecords
from pytest_ssr.storage.tree_archives import archive_of, place_archive

TREES = "trees"
_NAME = re.compile(r"[0-9a-f]{40}")


def path_of(tree_hash: str) -> str:
    """Return the path of a tree's archive among the shared files of a store."""
    return f"{TREES}/{tree_hash}/tree.tar.gz"


class SharedTrees:
    """The trees of a store's results, which machines that share the store exchange."""

    def __init__(self, trees: Path, shared: SharedRecords | None) -> None:
        """trees: the store's folder of trees; shared: None for a store that shares nothing."""
        self._trees, self._shared = trees, shared
        self._known: set[str] = set()

    def share(self, tree_hash: object) -> bool:
        """Share the tree of a result unless that was done; return whether it was done now.

        tree_hash: as the artifact or the campaign names it. Nothing happens if this machine does not have the tree.
        """
        if self._shared is None or not is_tree_hash(tree_hash) or tree_hash in self._known:
            return False
        path = path_of(str(tree_hash))
        is_shared = bool(self._shared.digests(path.rpartition("/")[0]))
        archive = None if is_shared else archive_of(self._trees / str(tree_hash))
        if archive is not None:
            self._shared.put({path: archive})
        if is_shared or archive is not None:
            self._known.add(str(tree_hash))
        return archive is not None

    def fetch(self, tree_hash: object) -> None:
        """Write a shared tree into the store, unless it is there or nobody has shared it.

        Raises DamagedTreeError if what others have shared is not this tree, StoreError if nothing can be fetched.
        """
        if self._shared is None or not is_tree_hash(tree_hash):
            return
        folder = self._trees / str(tree_hash)
        try:
            if is_complete(folder):
                return
        except OSError as error:
            raise StoreError(f"cannot read {error.filename or folder}: {os_error_advice(error)}") from None
        data = self._shared.get(path_of(str(tree_hash)))
        if data is not None:
            place_archive(data, self._trees, str(tree_hash))


def trees_of_results(root: Path) -> list[str]:
    """Return the hashes of the trees of artifacts and campaigns in a store's folder, sorted; raises StoreError."""
    found = set()
    for pattern in (f"artifacts/*/{INFO}", f"spare/*/{INFO}", "campaigns/*.json"):
        for path in root.glob(pattern):
            try:
                name = (json_object(path.read_bytes()) or {}).get("tree_hash")
            except FileNotFoundError:
                # It is published or set aside just now.
                continue
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}") from None
            if is_tree_hash(name):
                found.add(str(name))
    return sorted(found)


def is_tree_hash(name: object) -> bool:
    """Return whether a value can be the hash of a tree."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
