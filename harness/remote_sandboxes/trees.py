"""Describe a tree by the hashes of its files, so that each file is sent to a host only once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from harness.remote_sandboxes.calls import ErrorCode, RemoteError, TreeEntry
from pytest_ssr.errors import SandboxError

ROOT = "."
MAX_ENTRIES = 500_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PERMISSIONS = 0o777
_MAX_MTIME_NS = 2**62
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree and where its files are."""

    folder: Path
    entries: tuple[TreeEntry, ...]
    """Sorted by path, so that a folder comes before what it contains."""
    id: str


class TreeReader:
    """Reads trees; files that have not changed since the last time are not read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digests: dict[Path, dict[str, tuple[tuple[int, ...], str]]] = {}
        self._last: dict[Path, Tree] = {}

    def read(self, folder: Path) -> Tree:
        """Return the tree of a folder; raises SandboxError if it cannot be read."""
        with self._lock:
            known = self._digests.pop(folder, {})
            seen: dict[str, tuple[tuple[int, ...], str]] = {}
            try:
                entries = tuple(sorted(_entries(folder, known, seen), key=lambda entry: entry.path))
            except OSError as error:
                raise SandboxError(f"the tree cannot be read for the sandbox: {error}") from None
            last = self._last.get(folder)
            tree = last if last and last.entries == entries else Tree(folder, entries, tree_id(entries))
            # Only the last tree: a campaign opens thousands of sandboxes on one.
            self._digests, self._last = {folder: seen}, {folder: tree}
            return tree


def _entries(
    folder: Path, known: dict[str, tuple[tuple[int, ...], str]], seen: dict[str, tuple[tuple[int, ...], str]]
) -> Iterator[TreeEntry]:
    top = folder.stat()
    # Without its time, so that all empty folders are one tree.
    yield TreeEntry(ROOT, stat.S_IMODE(top.st_mode) & _PERMISSIONS, 0)
    pending = [""]
    while pending:
        parent = pending.pop()
        with os.scandir(folder / parent) as found:
            for item in found:
                path, status = parent + item.name, item.stat(follow_symlinks=False)
                mode = stat.S_IMODE(status.st_mode) & _PERMISSIONS
                if stat.S_ISLNK(status.st_mode):
                    yield TreeEntry(path, mode, status.st_mtime_ns, target=os.readlink(item.path))
                elif stat.S_ISDIR(status.st_mode):
                    pending.append(f"{path}/")
                    yield TreeEntry(path, mode, status.st_mtime_ns)
                elif stat.S_ISREG(status.st_mode):
                    stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                    old = known.get(path)
                    digest = old[1] if old is not None and old[0] == stamp else _digest(item.path)
                    seen[path] = (stamp, digest)
                    yield TreeEntry(path, mode, status.st_mtime_ns, digest, status.st_size)
                # Fifos, sockets and devices are skipped, as by other sandboxes.


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_id(entries: Sequence[TreeEntry]) -> str:
    """Return the name of a tree: a hash of all that it contains."""
    text = json.dumps([astuple(entry) for entry in entries])
    return hashlib.sha256(text.encode()).hexdigest()


def require_valid(entries: Sequence[TreeEntry]) -> None:
    """Raise RemoteError unless these entries form a tree in which every path stays below the root.

    A link may point anywhere, but nothing lies below a link or a file.
    """
    if not entries or len(entries) > MAX_ENTRIES:
        raise RemoteError(ErrorCode.MALFORMED, f"a tree has 1 to {MAX_ENTRIES} entries")
    folders, paths = {""}, set[str]()
    for entry in entries:
        is_plain = entry.path == ROOT or not {"", ".", ".."} & set(entry.path.split("/"))
        is_kind = (not entry.digest or bool(_DIGEST.fullmatch(entry.digest))) and not (entry.digest and entry.target)
        is_bounded = 0 <= entry.mode <= _PERMISSIONS and entry.size >= 0 and abs(entry.mtime_ns) < _MAX_MTIME_NS
        parent = entry.path.rpartition("/")[0]
        is_valid = is_plain and is_kind and is_bounded and parent in folders and entry.path not in paths
        if not is_valid or "\0" in entry.path + entry.target:
            raise RemoteError(ErrorCode.MALFORMED, f"{entry.path[:100]!r} cannot be part of a tree")
        paths.add(entry.path)
        if entry.path != ROOT and not entry.digest and not entry.target:
            folders.add(entry.path)
