"""Find values in rows of other people's files by the names and encodings that their formats use.

A table lists the names of each column, in the order in which they are tried; a name with dots leads into objects. Names
are compared without regard to case. To read another format, add its names to a table.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_SHOWN = 30
_MAX_LITERAL = 8 << 20
"""Characters of a list that is Python text; larger ones are JSON."""

Columns = Mapping[str, tuple[str, ...]]
"""The names of each column by the name that is used here."""


def find_column(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any] | None:
    """Return the name and the value of a column, or None if the row has none of the names.

    If it has several, the first with a value that is not empty counts.
    """
    present = [(name, value) for name in names for value in _values_at(row, name)]
    return next(((name, value) for name, value in present if not is_empty(value)), next(iter(present), None))


def missing_column(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return a text about a column that a row does not have: the names that were looked for, and those it has."""
    return f"it has none of the columns {_listed(names)}; its columns are {_listed(sorted(_shown_keys(row)))}"


def is_empty(value: Any) -> bool:
    """Return whether a value stands for nothing: null, not a number, or an empty or blank text, list or object."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, Mapping | Sequence) and not value)


def text_list(value: Any) -> list[str]:
    """Return a list of texts: a list, the keys of an object, or one of these as JSON or as Python text.

    Raises ValueError with the reason for any other value.
    """
    if isinstance(value, str) and value.strip():
        value = _parsed(value.strip())
    if value is None or is_empty(value):
        return []
    if isinstance(value, Mapping):
        value = list(value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | set | frozenset):
        raise ValueError(f"is not a list of texts, but {type(value).__name__}")
    if not all(isinstance(v, str) for v in value):
        raise ValueError("is not a list of texts only")
    return list(value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    try:
        if len(text) > _MAX_LITERAL:
            raise ValueError("it is too long")
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"is neither JSON ({reason}) nor a list of Python") from None


def _values_at(row: Mapping[str, Any], name: str) -> list[Any]:
    """Return the value of a column as a list of one, empty if there is none.

    A nested column is there, and empty, if the object that would hold it is empty.
    """
    value: Any = row
    for depth, part in enumerate(name.split(".")):
        if depth and is_empty(value):
            return [None]
        if not isinstance(value, Mapping):
            return []
        found = next((k for k in value if isinstance(k, str) and k.casefold() == part.casefold()), None)
        if found is None:
            return []
        value = value[found]
    return [value]


def _shown_keys(row: Mapping[str, Any]) -> list[str]:
    """Return the names of a row's columns, and of those in its objects."""
    keys: list[str] = []
    for key, value in row.items():
        nested = [f"{key}.{k}" for k in value] if isinstance(value, Mapping) and len(value) <= _MOST_SHOWN else []
        keys += nested or [str(key)]
    return keys


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return (", ".join(ascii(n)[1:-1][:60] for n in names[:_MOST_SHOWN]) or "none") + more
