"""Write files compressed with Zstandard. Only this module imports zstandard."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

_LEVEL = 6


class ZstdFile:
    """A writer that compresses into a file, and always closes that file with itself."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False)

    def write(self, data: bytes) -> int:
        """Compress bytes and return their number."""
        self._writer.write(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of compressed bytes so far."""
        return int(self._writer.tell())

    def close(self) -> None:
        """Write the remaining data and close the file."""
        try:
            self._writer.close()
        finally:
            self._file.close()


def opened(path: Path) -> BinaryIO:
    """Open a compressed file for reading."""
    raw: BinaryIO = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(path.open("rb")))
    return raw
