"""Share files between the trees of a store: equal content at an equal path is one file on disk, with several names.

Nothing writes to the files of a store's trees: sandboxes copy them or show them below an overlay. Within one tree no
two paths share a file, because tests could notice that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.patch import FileEntry

EPOCH_S = 1_000_000_000
"""The modification time of every file of a snapshot, in seconds; no file changed later has it."""
FOLDER = ".files"
"""The name of the folder of shared files in a folder of trees."""
_BLOCK_BYTES = 512
"""The unit of `st_blocks`."""
_SYMLINK, _EXECUTABLE = 0o120000, 0o100755
_MODES = {0o100644: 0o644, _EXECUTABLE: 0o755}
"""The permissions of a file, by git's mode."""


class SharedFiles:
    """The files of the trees in a folder, by path, mode and content; a content is named by its id in git."""

    def __init__(self, trees: Path) -> None:
        self._folder = f"{trees}/{FOLDER}"
        self._made: set[str] = set()
        """Folders that exist."""

    def place(self, path: str, entry: FileEntry, target: str | Path, source: str | Path | None = None) -> None:
        """Create a tree's file or symlink at `target`, and its parents; `path` is its path in the tree.

        source: the file that the entry was just read from; if it is a shared one, it need not be read again. Where the
        file system refuses another hard link, the file is a copy.
        """
        self._make_parent(target)
        if entry.mode == _SYMLINK:
            write_entry(target, entry)
            return
        blob = hashlib.sha1(b"blob %d\0" % len(entry.data) + entry.data, usedforsecurity=False).hexdigest()
        shared = self._name(path, entry.mode, blob)
        if not _holds(shared, entry, source):
            self._add(shared, entry)
        try:
            os.link(shared, target)
        except OSError:
            # Too many links, or a file system without them.
            write_entry(target, entry)

    def place_blobs(self, blobs: Iterable[tuple[int, str, str]], tree: Path) -> list[str]:
        """Create the files of a tree that are shared already, and return the paths of the others.

        blobs: mode, id and path of each, as in git's index; the content of the files is the blob's.
        """
        others = []
        for mode, blob, path in blobs:
            raise_if_stopped()
            shared, target = self._name(path, mode, blob), f"{tree}/{path}"
            try:
                if mode not in _MODES or not _is_unchanged(os.stat(shared), mode):
                    others.append(path)
                    continue
                self._make_parent(target)
                os.link(shared, target)
            except OSError:
                others.append(path)
        return others

    def share_tree(self, tree: Path) -> None:
        """Replace the files of a tree that was just written by the shared ones."""
        for folder, _, names in os.walk(tree):
            for name in names:
                raise_if_stopped()
                target = os.path.join(folder, name)
                status = os.lstat(target)
                # A file with several names is a shared one.
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                    mode = _EXECUTABLE if status.st_mode & stat.S_IXUSR else 0o100644
                    with open(target, "rb") as file:
                        entry = FileEntry(file.read(), mode)
                    os.unlink(target)
                    self.place(os.path.relpath(target, tree), entry, target)

    def remove_unused(self, since_s: float, least_bytes: int) -> None:
        """Remove the files that no tree has had since a time, in seconds, but the newest of at most so many bytes."""
        unused = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    status = os.lstat(path)
                    if status.st_nlink == 1:
                        # Removing its last other name has changed its status.
                        unused.append((status.st_ctime, status.st_blocks * _BLOCK_BYTES, path))
        kept = 0
        for left_s, size, path in sorted(unused, reverse=True):
            kept += size
            if left_s < since_s and kept > least_bytes:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _name(self, path: str, mode: int, blob: str) -> str:
        digest = hashlib.sha256(f"{mode:o} {path}\0{blob}".encode("utf-8", "surrogateescape")).hexdigest()
        return f"{self._folder}/{digest[:2]}/{digest[2:]}"

    def _add(self, shared: str, entry: FileEntry) -> None:
        """Add a file, or replace a damaged one."""
        self._make_parent(shared)
        staging = f"{os.path.dirname(shared)}/.tmp-{secrets.token_hex(6)}"
        try:
            write_entry(staging, entry)
            os.replace(staging, shared)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staging)

    def _make_parent(self, target: str | Path) -> None:
        folder = os.path.dirname(target)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)


def write_entry(target: str | Path, entry: FileEntry) -> None:
    """Write one file or symlink of a tree, creating its parents."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if entry.mode == _SYMLINK:
        os.symlink(os.fsdecode(entry.data), target)
    else:
        with open(target, "wb") as file:
            file.write(entry.data)
        os.chmod(target, 0o755 if entry.mode == _EXECUTABLE else 0o644)
    os.utime(target, (EPOCH_S, EPOCH_S), follow_symlinks=False)


def _holds(shared: str, entry: FileEntry, source: str | Path | None) -> bool:
    """Return whether a shared file is as it was written."""
    try:
        status = os.stat(shared)
        if not _is_unchanged(status, entry.mode) or status.st_size != len(entry.data):
            return False
        if source is not None and os.path.samestat(status, os.lstat(source)):
            return True
        with open(shared, "rb") as file:
            return file.read() == entry.data
    except OSError:
        return False


def _is_unchanged(status: os.stat_result, mode: int) -> bool:
    """Return whether permissions and time of a shared file are as they were set."""
    return stat.S_IMODE(status.st_mode) == _MODES[mode] and status.st_mtime_ns == EPOCH_S * 10**9
