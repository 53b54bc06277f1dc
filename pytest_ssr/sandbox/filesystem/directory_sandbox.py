"""Provide the base class of sandboxes whose files lie in a folder of the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import uninterrupted
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.filesystem.overlay import OverlayFiles
from pytest_ssr.sandbox.filesystem.safe_files import PlainFiles
from pytest_ssr.sandbox.protocol import MIB


class DirectorySandbox(ABC):
    """The part of the sandbox protocol that runs no commands."""

    streams = True
    _folder: Path

    @abstractmethod
    def _locate(self, path: str) -> tuple[OverlayFiles | PlainFiles, str]:
        """Return the files that contain a path as seen inside, and the path relative to them."""

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        files, relative = self._locate(path)
        data = files.read(relative, max_bytes)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def peek(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content, even while a command runs, as the files lie on the host."""
        return self.read(path, max_bytes=max_bytes)

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        files, relative = self._locate(path)
        files.write(relative, data, executable=executable)

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        files, relative = self._locate(path)
        files.remove(relative)

    @uninterrupted()
    def close(self) -> None:
        """Remove the folder; nothing runs between commands."""
        workdirs.discard(self._folder)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _require_open(self) -> None:
        if not self._folder.is_dir():
            raise SandboxError("the sandbox is closed")
