"""Parse Python files into syntax trees."""

from __future__ import annotations

import ast

from pytest_ssr.source.warning_capture import recorded_warnings

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
