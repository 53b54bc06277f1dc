"""The files of an overlay view while it is not mounted: an upper directory over a tree that nobody changes.

The layout is the kernel's (Documentation/filesystems/overlayfs.rst): a character device 0/0 in the upper directory
hides what lies below it, and a directory whose attribute `user.overlay.opaque` is `y`
hides all that the tree has there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.files import content, open_folder, put, status
from pytest_ssr.sandbox.folders import OPAQUE


class OverlayFiles:
    """The merged files of an upper directory and a tree; only the upper directory is written."""

    def __init__(self, upper: Path, lower: Path) -> None:
        self.upper, self.lower = upper, lower

    def read(self, relative: str, max_bytes: int) -> bytes | None:
        """Return a regular file's content, or None when there is none; raises SandboxError when too large."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=False) as found:
            if found is None:
                return None
            upper, lower = found
            if upper is not None and status(name, upper) is not None:
                return content(upper, name, max_bytes)
            return None if lower is None else content(lower, name, max_bytes)

    def write(self, relative: str, data: bytes, *, executable: bool) -> None:
        """Write a regular file in place of what is there; raises SandboxError when it cannot."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=True) as found:
            if found is None or found[0] is None:
                raise SandboxError(f"{relative} cannot be written in the sandbox: a parent is a link or a file")
            upper, lower = found[0], found[1]
            if not _clear(name, upper, lower):
                raise SandboxError(f"{relative} cannot be written in the sandbox: it is a directory")
            put(upper, name, data, executable=executable, shown=relative)

    def remove(self, relative: str) -> None:
        """Remove a file or link, if it is there."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=False) as found:
            if found is None:
                return
            above, below = (status(name, layer) for layer in found)
        shown = above or below
        if shown is None or stat.S_ISDIR(shown.st_mode) or is_whiteout(shown):
            return
        with self._descend(parents, make=True) as found:
            if found is None or found[0] is None:
                raise SandboxError(f"{relative} cannot be removed in the sandbox")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=found[0])
            if below is not None:
                # Allowed to everybody since Linux 5.8, which is older than overlay mounts without root.
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=found[0])

    @contextmanager
    def _descend(self, parents: list[str], *, make: bool) -> Iterator[tuple[int | None, int | None] | None]:
        """Give the descriptors of a directory in both layers; None where a part is a link, a file or missing."""
        here: tuple[int | None, int | None] | None = open_folder(str(self.upper)), open_folder(str(self.lower))
        try:
            for part in parents:
                if here is None:
                    break
                before, here = here, None
                try:
                    here = _step(part, *before, make=make)
                finally:
                    _close(*before)
            yield here
        finally:
            _close(*(here or ()))


def is_whiteout(found: os.stat_result) -> bool:
    """Tell whether an entry of the upper directory stands for a deletion."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _step(part: str, upper: int | None, lower: int | None, *, make: bool) -> tuple[int | None, int | None] | None:
    above, below = status(part, upper), status(part, lower)
    deleted = above is not None and is_whiteout(above)
    if above is not None and not deleted:
        opened = open_folder(part, upper)
        if opened is None:
            return None
        return opened, None if below is None or _opaque(opened) else open_folder(part, lower)
    visible = None if deleted else below
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
    """Take away an empty directory of that name; False when it holds something."""
    above, below = status(name, upper), status(name, lower)
    shown = above or below
    if shown is None or not stat.S_ISDIR(shown.st_mode):
        return True
    here = (open_folder(name, upper), open_folder(name, lower) if lower is not None else None)
    try:
        opaque = here[0] is not None and _opaque(here[0])
        names = set() if here[1] is None or opaque else set(os.listdir(here[1]))
        for entry in os.listdir(here[0]) if here[0] is not None else ():
            found = status(entry, here[0])
            if found is not None and not is_whiteout(found):
                return False
            names.discard(entry)
        if names:
            return False
        for entry in os.listdir(here[0]) if here[0] is not None else ():
            os.unlink(entry, dir_fd=here[0])
    finally:
        _close(*here)
    if above is not None:
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
