"""Parse Python files into syntax trees."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import threading
import tokenize
import warnings
from collections.abc import Iterator

_recording = threading.RLock()


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record all warnings instead of showing them."""
    with _recording, warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield recorded


_MAX_BYTES = 500_000
_LONG_INTEGER = re.compile(r"0[xXoObB][0-9a-fA-F_]{3500}")


def is_utf8(data: bytes) -> bool:
    """Return whether a file can be read as UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def is_utf8_source(data: bytes) -> bool:
    """Return whether Python reads a file as UTF-8: another encoding may be named in one of its first two lines."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        return False
    return encoding in ("utf-8", "utf-8-sig") and is_utf8(data)


def has_long_integer(data: bytes | str) -> bool:
    """Return whether Python source may have an integer of more than 4,300 digits.

    Python reads it if it is not decimal, but neither `repr` nor `ast` writes it.
    """
    text = data if isinstance(data, str) else data.decode("latin-1")
    return _LONG_INTEGER.search(text) is not None


def parse_source(data: bytes | str) -> ast.Module:
    """Return the syntax tree of Python source; raises what `ast.parse` does, SyntaxError also for long integers."""
    if has_long_integer(data):
        raise SyntaxError("an integer has more digits than Python writes")
    return ast.parse(data)


def parse_module(data: bytes) -> ast.Module | None:
    """Return the syntax tree of a file; None if the file cannot be parsed or has more than 500,000 bytes."""
    if len(data) > _MAX_BYTES:
        return None
    with recorded_warnings():
        try:
            return parse_source(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
