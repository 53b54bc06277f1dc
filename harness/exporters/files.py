"""Read lines and JSON objects from the files of sources."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.exporters.skipped import damaged
from pytest_ssr.records.decoding import parse_json

MOST_BYTES = 512 * 1024**2
"""A longer record is skipped."""


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file with their offsets in bytes; one over `MOST_BYTES` is cut."""
    with path.open("rb") as file:
        while line := file.readline(MOST_BYTES):
            offset = file.tell() - len(line)
            part = line
            while len(part) == MOST_BYTES and not part.endswith(b"\n"):
                part = file.readline(MOST_BYTES)
            if line.strip():
                yield offset, line


def parsed(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; raises SkippedError for anything else."""
    try:
        value = parse_json(data)
    except (ValueError, RecursionError):
        raise damaged("it is not JSON") from None
    if not isinstance(value, dict):
        raise damaged("it is not a JSON object")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; raises SkippedError if the file has none."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode) or info.st_size > MOST_BYTES:
            raise damaged(f"{path.name} is not a regular file of at most {MOST_BYTES // 1024**2} MiB")
        return parsed(path.read_bytes())
    except OSError as error:
        raise damaged(f"{path.name} cannot be read: {error.strerror}") from None


def folders(folder: Path) -> Iterator[Path]:
    """Yield the subfolders of a folder in the order of their names, without links; nothing if it is not a folder."""
    if folder.is_dir():
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        yield from (folder / name for name in names)
