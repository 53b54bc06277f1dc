"""Write and read positions in lists: opaque to clients, checked when they come back."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence

from pytest_ssr.errors import SettingsError

_MAX_LENGTH = 1_024
_MAX_INTEGER = 2**63 - 1


def encode_cursor(key: Sequence[object]) -> str:
    """Return the position after an item. key: the values that sort it."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def decode_cursor(text: str, types: Sequence[type]) -> list[object]:
    """Return the values that sort the item before a position; raises SettingsError if it is not such a position."""
    values = _decoded(text) if len(text) <= _MAX_LENGTH else None
    if not isinstance(values, list) or len(values) != len(types) or not all(map(_fits, values, types)):
        raise SettingsError("`after` is not a position in this list; use the value of `next`", option="after")
    return values


def _decoded(text: str) -> object:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return None


def _fits(value: object, expected: type) -> bool:
    if type(value) is not expected:
        return False
    if isinstance(value, int):
        return abs(value) <= _MAX_INTEGER
    if isinstance(value, float):
        return math.isfinite(value)
    # PostgreSQL takes no NUL, and nothing takes a lone surrogate.
    return isinstance(value, str) and "\0" not in value and value.isprintable()
