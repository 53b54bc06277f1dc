"""Whether a record that was read has in each field what belongs there: files are edited, cut off, or not ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_Record = TypeVar("_Record", bound=Any)
_LARGEST, _LARGEST_WHOLE = 1e100, 2**63
"""More than anything that is counted, paid or waited for; tables hold less, and sums of it."""

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
    "Mapping[str, Any]": (dict,),
}


def whole(record: _Record) -> _Record:
    """Return a dataclass whose fields hold what they are declared to; raises TypeError naming the first that does not.

    What is declared as a class of its own is believed: who reads it looks at it there.
    """
    for item in fields(record):
        value, kinds = getattr(record, item.name), str(item.type).split(" | ")
        if not any(_is(value, kind) for kind in kinds):
            raise TypeError(f"{item.name} of a {type(record).__name__} is no {item.type}")
    return record


def _is(value: object, kind: str) -> bool:
    if kind.startswith("tuple["):
        held = _KINDS.get(kind.removeprefix("tuple[").removesuffix(", ...]"))
        return type(value) is tuple and (held is None or all(type(item) in held for item in value))
    if kind not in _KINDS:
        return True
    if type(value) not in _KINDS[kind]:
        return False
    # Beyond that are infinity, what is no number, and numbers that no table or sum can take.
    if isinstance(value, float):
        return abs(value) <= _LARGEST
    return not isinstance(value, int) or abs(value) < _LARGEST_WHOLE
