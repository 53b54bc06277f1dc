"""Python files as syntax trees."""

from __future__ import annotations

import ast

from pytest_ssr.quiet import recorded_warnings

_MOST_BYTES = 500_000


def parsed(data: bytes) -> ast.Module | None:
    """Return the syntax of a file; None where it is none, or too large to look at."""
    if len(data) > _MOST_BYTES:
        return None
    with recorded_warnings():
        try:
            return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
