"""Describe the columns of a format as features of Hugging Face's `datasets`, for cards and parquet files.

Without them a reader guesses the types from the first rows, and guesses wrong if a column is empty at first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.exporters.protocol import BITS, IDS, JSON, NUMBER, NUMBERS, OBJECTS, TEXT, TEXTS, TRUTH, WHOLE

_SINGLE = {TEXT: "string", NUMBER: "float64", WHOLE: "int64", TRUTH: "bool", JSON: "json"}
_LISTS = {TEXTS: "string", IDS: "int32", BITS: "int8", NUMBERS: "float64", OBJECTS: "json"}


def as_json(columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the features as a parquet file holds them in its metadata."""

    def value(kind: str) -> dict[str, Any]:
        return {"_type": "Json"} if kind == "json" else {"dtype": kind, "_type": "Value"}

    return {
        name: value(_SINGLE[kind]) if kind in _SINGLE else {"feature": value(_LISTS[kind]), "_type": "List"}
        for name, kind in columns.items()
    }


def as_yaml(columns: Mapping[str, str]) -> Iterator[str]:
    """Yield the features as the lines of a card's head, below `features:`."""
    for name, kind in columns.items():
        yield f"- name: {name}"
        yield f"  dtype: {_SINGLE[kind]}" if kind in _SINGLE else f"  list: {_LISTS[kind]}"
