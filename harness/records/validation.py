"""Check the field types of records that were read from files, which may be edited, truncated or foreign."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_Record = TypeVar("_Record", bound=Any)
_MAX_FLOAT, _INT_LIMIT = 1e100, 2**63
"""Larger than any count, cost or duration, yet small enough for tables and for sums."""

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
    "Mapping[str, Any]": (dict,),
}


def validated(record: _Record) -> _Record:
    """Return the dataclass if its fields have their declared types; raises TypeError naming the first that does not.

    Fields declared as other classes are not checked here: the code that reads those classes does it.
    """
    for item in fields(record):
        value, kinds = getattr(record, item.name), str(item.type).split(" | ")
        if not any(_matches(value, kind) for kind in kinds):
            raise TypeError(f"{item.name} of a {type(record).__name__} is not of type {item.type}")
    return record


def _matches(value: object, kind: str) -> bool:
    if kind.startswith("tuple["):
        item_kinds = _KINDS.get(kind.removeprefix("tuple[").removesuffix(", ...]"))
        return type(value) is tuple and (item_kinds is None or all(type(item) in item_kinds for item in value))
    if kind not in _KINDS:
        return True
    if type(value) not in _KINDS[kind]:
        return False
    # This also excludes infinity and NaN.
    if isinstance(value, float):
        return abs(value) <= _MAX_FLOAT
    return not isinstance(value, int) or abs(value) < _INT_LIMIT
