"""Read and write values as Python literals: numbers, strings, bytes, booleans, None, and containers of these."""

from __future__ import annotations

import ast
import math
from typing import TypeAlias

Literal: TypeAlias = object
"""A value of exactly one of these types."""
MOST_CHARACTERS = 600
_ATOMS = (bool, int, str, bytes, type(None))
_CONTAINERS = (list, tuple, set)


def parse_literal(text: object) -> tuple[Literal] | None:
    """Return the value in a tuple; None if the text, which is not trusted, is no literal or a long one."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return (value,) if is_literal(value) else None


def is_literal(value: object) -> bool:
    """Return whether a value can be written as a literal."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in _CONTAINERS:
        return all(map(is_literal, value))  # type: ignore[call-overload] # exactly a list, a tuple or a set
    if isinstance(value, dict):
        return all(is_literal(key) and is_literal(item) for key, item in value.items())
    return type(value) in _ATOMS


def source_of(value: Literal) -> str:
    """Return a literal as formatters write it: strings in double quotes, sets sorted."""
    if isinstance(value, str | bytes):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(source_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(source_of, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(source_of, value)))}}}" if value else "set()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _quoted(value: str | bytes) -> str:
    text = repr(value)
    start = text.index("'") if "'" in text else -1
    # With a double quote in it, or with a single one and hence in double quotes already, it stays as it is.
    if '"' in text or start not in (0, 1) or "\\'" in text:
        return text
    return f'{text[:start]}"{text[start + 1 : -1]}"'


def differ(first: Literal, second: Literal) -> bool:
    """Return whether an assertion about the first value fails for the second one."""
    if isinstance(first, bool | None):
        return first is not second
    return first != second
