"""Make values fit into their columns: they come from files that models, projects and other releases have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

LONGEST_TEXT = 512
"""Characters of a text without a length of its own; PostgreSQL cannot index a value of more than 2,700 bytes."""
_LARGEST, _LARGEST_BIG = 2**31 - 1, 2**63 - 1


def fitted(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table in which texts are cleaned and cut, and numbers bounded, as their columns need it."""
    return {name: _fitted(table.c[name].type, value) for name, value in row.items()}


def cleaned(text: str) -> str:
    """Return a string that every database can hold: PostgreSQL takes no NUL, and nothing takes a lone surrogate."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _fitted(kind: sa.types.TypeEngine[Any], value: Any) -> Any:
    if isinstance(value, str):
        length = getattr(kind, "length", None) or LONGEST_TEXT
        # Cut first: a value may be as long as a file.
        return cleaned(value[:length])[:length]
    if isinstance(value, float):
        return value if math.isfinite(value) else 0.0
    if isinstance(value, int) and not isinstance(value, bool):
        largest = _LARGEST if type(kind) is sa.Integer else _LARGEST_BIG
        return max(-largest, min(value, largest))
    return value
