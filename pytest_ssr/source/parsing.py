"""Parse Python files into syntax trees."""

from __future__ import annotations

import ast
import contextlib
import threading
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


def parse_module(data: bytes) -> ast.Module | None:
    """Return the syntax tree of a file; None if the file cannot be parsed or has more than 500,000 bytes."""
    if len(data) > _MAX_BYTES:
        return None
    with recorded_warnings():
        try:
            return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
