"""Write files atomically: a file is either complete or unchanged."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

UNFINISHED = ".writing-"
"""How the names of files begin that are being written; a kill leaves them."""


def lone_surrogate(text: str) -> str:
    """Return the first lone surrogate of a string, escaped as `\\uXXXX`; empty if there is none.

    No file can hold it. The surrogates that stand for undecodable bytes (`surrogateescape`) can be written.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"\\u{ord(text[error.start]):04x}"
    return ""


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, and create its parent folders; raises OSError."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write bytes atomically, as `write_text` does. mode: the permissions of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
