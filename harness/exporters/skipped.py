"""Define the error for what an export skips, and validate values that rows may contain."""

from __future__ import annotations

import math
from typing import Any

from harness.records.messages import is_deep
from pytest_ssr.errors import SsrError

_LARGEST = 2**63 - 1


class SkippedError(SsrError):
    """Something yields no row of this export."""

    def __init__(self, reason: str, detail: str = "") -> None:
        """reason: the text by which skipped items are counted. detail: of this item only."""
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


def damaged(detail: str) -> SkippedError:
    """Return the error to raise for a damaged record."""
    return SkippedError("the record is damaged", detail)


def require_plain(value: object, label: str) -> None:
    """Raise SkippedError unless a value can be written as JSON in UTF-8 that every reader accepts.

    Rejected are lone surrogates, infinity and NaN, integers of more than 64 bits (which tables cannot store), keys that
    are not strings, and nesting deeper than 50 levels. label: names the value in the message.
    """
    if is_deep(value):
        raise damaged(f"{label} is nested too deeply")
    _require(value, label)


def _require(value: object, label: str) -> None:
    kind = type(value)
    if kind is str:
        require_text(value, label)
    elif kind is dict:
        assert isinstance(value, dict)
        for key, item in value.items():
            require_text(key, f"a key in {label}")
            _require(item, label)
    elif kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        for item in value:
            _require(item, label)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise damaged(f"{label} contains {value}, which JSON cannot represent")
    elif isinstance(value, int):
        if abs(value) > _LARGEST:
            raise damaged(f"{label} contains an integer of more than 64 bits")
    elif value is not None:
        raise damaged(f"{label} contains a {kind.__name__}")


def require_text(value: Any, label: str) -> str:
    """Return a string that UTF-8 can encode; raises SkippedError for anything else."""
    if not isinstance(value, str):
        raise damaged(f"{label} is not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise damaged(f"{label} contains a lone surrogate, which UTF-8 cannot encode") from None
    return value
