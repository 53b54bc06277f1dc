"""What sandboxes whose files lie in a folder of the host have in common: files in and out, and the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import folders
from pytest_ssr.sandbox.files import PlainFiles
from pytest_ssr.sandbox.layers import OverlayFiles
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.stopping import uninterrupted


class FolderBacked(ABC):
    """The half of the protocol that needs no running command."""

    _folder: Path

    @abstractmethod
    def _place(self, path: str) -> tuple[OverlayFiles | PlainFiles, str]:
        """Return the files that a path as seen inside belongs to, and the path relative to them."""

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        files, relative = self._place(path)
        data = files.read(relative, max_bytes)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def peek(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content while a command runs; the files lie on the host, where nobody has to ask."""
        return self.read(path, max_bytes=max_bytes)

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        files, relative = self._place(path)
        files.write(relative, data, executable=executable)

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        files, relative = self._place(path)
        files.remove(relative)

    @uninterrupted()
    def close(self) -> None:
        """Remove the folder; nothing runs between commands."""
        folders.discard(self._folder)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _require_open(self) -> None:
        if not self._folder.is_dir():
            raise SandboxError("the sandbox is closed")
