"""Share files between the trees of a store: equal content at an equal path is one file on disk, with several names.

Nothing writes to the files of a store's trees: sandboxes copy them or show them below an overlay. Within one tree no
two paths share a file, because tests could notice that.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path

from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.patch import FileEntry

EPOCH_S = 1_000_000_000
"""The modification time of every file of a snapshot, in seconds; no file changed later has it."""
_FOLDER = ".files"


class SharedFiles:
    """The files of the trees in a folder, by path, mode and content."""

    def __init__(self, trees: Path) -> None:
        self._folder = trees / _FOLDER

    def place(self, path: str, entry: FileEntry, target: Path) -> None:
        """Create a tree's file or symlink at `target`, and its parents; `path` is its path in the tree.

        Where the file system refuses another hard link, the file is a copy.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == 0o120000:
            write_entry(target, entry)
            return
        digest = hashlib.sha256(f"{entry.mode:o} {path}\0".encode("utf-8", "surrogateescape") + entry.data).hexdigest()
        shared = self._folder / digest[:2] / digest[2:]
        if not _holds(shared, entry):
            self._add(shared, entry)
        try:
            os.link(shared, target)
        except OSError:
            # Too many links, or a file system without them.
            write_entry(target, entry)

    def share_tree(self, tree: Path) -> None:
        """Replace the files of a tree that was just written by the shared ones."""
        for folder, _, names in os.walk(tree):
            for name in names:
                raise_if_stopped()
                target = Path(folder, name)
                status = target.lstat()
                if stat.S_ISREG(status.st_mode):
                    mode = 0o100755 if status.st_mode & stat.S_IXUSR else 0o100644
                    entry = FileEntry(target.read_bytes(), mode)
                    target.unlink()
                    self.place(target.relative_to(tree).as_posix(), entry, target)

    def _add(self, shared: Path, entry: FileEntry) -> None:
        """Add a file, or replace a damaged one."""
        shared.parent.mkdir(parents=True, exist_ok=True)
        staging = shared.with_name(f".tmp-{secrets.token_hex(6)}")
        try:
            write_entry(staging, entry)
            staging.replace(shared)
        finally:
            staging.unlink(missing_ok=True)


def write_entry(target: Path, entry: FileEntry) -> None:
    """Write one file or symlink of a tree, creating its parents."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.mode == 0o120000:
        target.symlink_to(os.fsdecode(entry.data))
    else:
        target.write_bytes(entry.data)
        target.chmod(0o755 if entry.mode == 0o100755 else 0o644)
    os.utime(target, (EPOCH_S, EPOCH_S), follow_symlinks=False)


def _holds(shared: Path, entry: FileEntry) -> bool:
    """Return whether a shared file is as it was written."""
    try:
        with shared.open("rb") as file:
            status = os.fstat(file.fileno())
            mode = 0o755 if entry.mode == 0o100755 else 0o644
            unchanged = stat.S_IMODE(status.st_mode) == mode and status.st_mtime_ns == EPOCH_S * 10**9
            return unchanged and file.read() == entry.data
    except OSError:
        return False
