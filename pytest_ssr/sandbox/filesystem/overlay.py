"""Access the files of an overlay view while it is not mounted: an upper directory over an unchanging tree.

The layout is the kernel's (Documentation/filesystems/overlayfs.rst): a character device 0/0 in the upper directory
hides the entry below it, and a directory whose attribute `user.overlay.opaque` is `y` hides everything that the tree
has there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.filesystem.safe_files import content, open_folder, put, status
from pytest_ssr.sandbox.filesystem.workdirs import OPAQUE


class OverlayFiles:
    """The merged files of an upper directory and a tree; only the upper directory is written."""

    def __init__(self, upper: Path, lower: Path) -> None:
        self.upper, self.lower = upper, lower

    def read(self, relative: str, max_bytes: int) -> bytes | None:
        """Return a regular file's content, or None if it does not exist; raises SandboxError if it is too large."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=False) as layers:
            if layers is None:
                return None
            upper, lower = layers
            if upper is not None and status(name, upper) is not None:
                return content(upper, name, max_bytes)
            return None if lower is None else content(lower, name, max_bytes)

    def write(self, relative: str, data: bytes, *, executable: bool) -> None:
        """Write or replace a regular file; raises SandboxError if that fails."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=True) as layers:
            if layers is None or layers[0] is None:
                raise SandboxError(f"{relative} cannot be written in the sandbox: a parent is a link or a file")
            upper, lower = layers[0], layers[1]
            if not _clear(name, upper, lower):
                raise SandboxError(f"{relative} cannot be written in the sandbox: it is a directory")
            put(upper, name, data, executable=executable, shown=relative)

    def remove(self, relative: str) -> None:
        """Remove a file or link, if it exists."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=False) as layers:
            if layers is None:
                return
            upper_entry, lower_entry = (status(name, layer) for layer in layers)
        shown = upper_entry or lower_entry
        if shown is None or stat.S_ISDIR(shown.st_mode) or is_whiteout(shown):
            return
        with self._descend(parents, make=True) as layers:
            if layers is None or layers[0] is None:
                raise SandboxError(f"{relative} cannot be removed in the sandbox")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=layers[0])
            if lower_entry is not None:
                # Allowed to every user since Linux 5.8, which is older than overlay mounts without root.
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=layers[0])

    @contextmanager
    def _descend(self, parents: list[str], *, make: bool) -> Iterator[tuple[int | None, int | None] | None]:
        """Yield the descriptors of a directory in both layers; None if a part is a link, a file or missing."""
        current: tuple[int | None, int | None] | None = open_folder(str(self.upper)), open_folder(str(self.lower))
        try:
            for part in parents:
                if current is None:
                    break
                previous, current = current, None
                try:
                    current = _step(part, *previous, make=make)
                finally:
                    _close(*previous)
            yield current
        finally:
            _close(*(current or ()))


def is_whiteout(entry: os.stat_result) -> bool:
    """Return whether an entry of the upper directory marks a deletion."""
    return stat.S_ISCHR(entry.st_mode) and entry.st_rdev == 0


def _step(part: str, upper: int | None, lower: int | None, *, make: bool) -> tuple[int | None, int | None] | None:
    upper_entry, lower_entry = status(part, upper), status(part, lower)
    deleted = upper_entry is not None and is_whiteout(upper_entry)
    if upper_entry is not None and not deleted:
        opened = open_folder(part, upper)
        if opened is None:
            return None
        return opened, None if lower_entry is None or _opaque(opened) else open_folder(part, lower)
    visible = None if deleted else lower_entry
    if visible is not None and not stat.S_ISDIR(visible.st_mode):
        return None
    if not make:
        return None if visible is None else (None, open_folder(part, lower))
    if upper is None:
        return None
    if deleted:
        os.unlink(part, dir_fd=upper)
    os.mkdir(part, 0o755, dir_fd=upper)
    opened = open_folder(part, upper)
    if opened is not None and visible is not None:
        os.fchmod(opened, stat.S_IMODE(visible.st_mode))
        return opened, open_folder(part, lower)
    if opened is not None and deleted:
        os.setxattr(opened, OPAQUE, b"y")
    return None if opened is None else (opened, None)


def _clear(name: str, upper: int, lower: int | None) -> bool:
    """Remove an empty directory of that name; return False if it is not empty."""
    upper_entry, lower_entry = status(name, upper), status(name, lower)
    shown = upper_entry or lower_entry
    if shown is None or not stat.S_ISDIR(shown.st_mode):
        return True
    layers = (open_folder(name, upper), open_folder(name, lower) if lower is not None else None)
    try:
        opaque = layers[0] is not None and _opaque(layers[0])
        names = set() if layers[1] is None or opaque else set(os.listdir(layers[1]))
        for entry in os.listdir(layers[0]) if layers[0] is not None else ():
            entry_status = status(entry, layers[0])
            if entry_status is not None and not is_whiteout(entry_status):
                return False
            names.discard(entry)
        if names:
            return False
        for entry in os.listdir(layers[0]) if layers[0] is not None else ():
            os.unlink(entry, dir_fd=layers[0])
    finally:
        _close(*layers)
    if upper_entry is not None:
        os.rmdir(name, dir_fd=upper)
    return True


def _opaque(folder: int) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(folder, OPAQUE) == b"y"
    return False


def _close(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)
