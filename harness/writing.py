"""Text in, a file out that is whole or as it was before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def half_character(text: str) -> str:
    """Return how the first half of a pair of surrogates is written that is in a text alone; empty where there is none.

    No file can hold it. Bytes that are no UTF-8 stand in texts as others, which can be written.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"\\u{ord(text[error.start]):04x}"
    return ""


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, with the folders that it lies in; raises OSError."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes likewise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
