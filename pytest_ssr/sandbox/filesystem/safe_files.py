"""Read and write files that untrusted code may have arranged: no link is followed, no device is opened.

Paths are given as seen inside. Every directory of a path is opened separately, relative to its parent, so that a link
planted anywhere ends the walk (openat(2), O_NOFOLLOW).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_ssr.errors import SandboxError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def locate(path: str, root: str, scratch: str) -> tuple[bool, str]:
    """Return whether a path as seen inside lies in scratch, and the path relative to scratch or to the root.

    Raises SandboxError for a path that lies outside both or is not plain.
    """
    full = path if path.startswith("/") else f"{root}/{path}"
    for directory, in_scratch in ((scratch, True), (root, False)):
        if full.startswith(f"{directory}/") and "\0" not in full:
            relative = full[len(directory) + 1 :]
            if not {"", ".", ".."} & set(relative.split("/")):
                return in_scratch, relative
    raise SandboxError(f"{path!r} is not a plain path inside the sandbox")


def working_directory(root: str, cwd: str | None) -> str:
    """Return the absolute directory in which a command starts, as seen inside; `cwd` may be relative to the root."""
    if not cwd:
        return root
    return cwd if cwd.startswith("/") else f"{root}/{cwd}"


class PlainFiles:
    """The files below one directory."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def read(self, relative: str, max_bytes: int) -> bytes | None:
        """Return a regular file's content, or None if it does not exist; raises SandboxError if it is too large."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=False) as folder:
            return None if folder is None else content(folder, name, max_bytes)

    def write(self, relative: str, data: bytes, *, executable: bool) -> None:
        """Write or replace a regular file; raises SandboxError if that fails."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=True) as folder:
            if folder is None:
                raise SandboxError(f"{relative} cannot be written in the sandbox: a parent is a link or a file")
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)
            put(folder, name, data, executable=executable, shown=relative)

    def remove(self, relative: str) -> None:
        """Remove a file or link, if it exists."""
        *parents, name = relative.split("/")
        with self._descend(parents, make=False) as folder:
            if folder is not None:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(name, dir_fd=folder)

    @contextmanager
    def _descend(self, parents: list[str], *, make: bool) -> Iterator[int | None]:
        current = open_folder(str(self.top))
        try:
            for part in parents:
                if current is None:
                    break
                if make:
                    with contextlib.suppress(OSError):
                        os.mkdir(part, 0o755, dir_fd=current)
                following = open_folder(part, current)
                os.close(current)
                current = following
            yield current
        finally:
            if current is not None:
                os.close(current)


def open_folder(name: str, parent: int | None = None) -> int | None:
    """Return a descriptor of a directory, or None if it does not exist or is a link."""
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except OSError:
        return None


def status(name: str, folder: int | None) -> os.stat_result | None:
    """Return the status of an entry without following links, or None if it does not exist."""
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def content(folder: int, name: str, max_bytes: int) -> bytes | None:
    """Return a regular file's content, or None if it is not one; raises SandboxError if it is too large."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    # A directory can be opened too, but not as a file object.
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        # A reader reserves the memory that it is asked for, and a machine may refuse a few hundred megabytes.
        data = file.read(min(info.st_size, max_bytes) + 1)
    if len(data) > max_bytes:
        raise SandboxError(f"{name} is larger than {max_bytes} bytes")
    return data


def put(folder: int, name: str, data: bytes, *, executable: bool, shown: str) -> None:
    """Write a file under a temporary name and rename it, so that an existing file is replaced, not written through."""
    staged = f".{secrets.token_hex(8)}"
    mode = 0o755 if executable else 0o644
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.rename(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(staged, dir_fd=folder)
        raise SandboxError(f"{shown} cannot be written in the sandbox: {error.strerror}") from None


def make_folder(top: Path, relative: str) -> None:
    """Create a directory and its parents below `top`, replacing links and files; follows no link."""
    current = open_folder(str(top))
    try:
        for part in relative.split("/"):
            existing = status(part, current)
            if existing is not None and not stat.S_ISDIR(existing.st_mode):
                os.unlink(part, dir_fd=current)
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=current)
            following = open_folder(part, current)
            if following is None:
                raise SandboxError(f"{relative} cannot be created in the sandbox")
            if current is not None:
                os.close(current)
            current = following
    except OSError as error:
        raise SandboxError(f"{relative} cannot be created in the sandbox: {error.strerror}") from None
    finally:
        if current is not None:
            os.close(current)
