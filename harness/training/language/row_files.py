"""Read files of rows that `ssr export` wrote for a method. Each row is checked: anybody can write such a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.exporters.protocol import Row
from harness.exporters.tokens import IGNORED
from harness.records.trajectory import SCHEMA
from harness.training.language.plan import Method
from pytest_ssr.errors import SettingsError


def _are_messages(value: Any) -> bool:
    """Whether a value is a list of messages with a role and a text, or no text."""
    return isinstance(value, list) and all(
        isinstance(item, dict)
        and isinstance(item.get("role"), str)
        and isinstance(item.get("content"), str | None)
        and _are_objects(item.get("tool_calls"))
        for item in value
    )


def _are_objects(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= IGNORED for item in value)


def _are_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value))


TEXTS = "reply_texts"
"""The column with the texts of the replies whose token ids a row has, if it comes from a store."""
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("messages", "prompt", "completion", "chosen", "rejected"), (_are_messages, "a list of messages")),
    **dict.fromkeys(("input_ids", "labels"), (_are_ids, "a list of token ids")),
    "label": (lambda value: isinstance(value, bool), "true or false"),
    "tools": (_are_objects, "a list of tools"),
    TEXTS: (_are_texts, "a list of strings"),
}
_OPTIONAL = frozenset({"tools", TEXTS})
TOKENS = frozenset({"input_ids", "labels"})
_COLUMNS = {
    Method.SFT: (TOKENS, frozenset({"messages"})),
    Method.BC: (TOKENS, frozenset({"prompt", "completion"})),
    Method.DPO: (frozenset({"prompt", "chosen", "rejected"}),),
    Method.KTO: (frozenset({"prompt", "completion", "label"}),),
}
"""The columns of a row, as alternatives."""


def file_rows(path: Path, method: Method, *, token_ids: bool) -> Iterator[Row]:
    """Yield the rows of a file; raises SettingsError, naming the line, for one that the method cannot use."""
    wanted = [columns for columns in _COLUMNS[method] if token_ids or columns is not TOKENS]
    count = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            count += 1
            yield _row(line, f"{path}, line {number}", wanted, method)
    if not count:
        raise SettingsError(f"{path} has no rows; make the file with ssr export --format {method}", option="source")


def is_record(line: bytes) -> bool:
    """Return whether a line is the canonical record of a rollout."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.get("schema") == SCHEMA


def _row(line: bytes, location: str, wanted: list[frozenset[str]], method: Method) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise SettingsError(f"{location} is not JSON; the file may have been cut off") from None
    if isinstance(row, dict) and row.get("schema") == SCHEMA:
        raise SettingsError(
            f"{location} is a record of a rollout among rows of {method}; give each kind in a file of its own",
            option="source",
        )
    columns = next((names for names in wanted if isinstance(row, dict) and names <= row.keys()), None)
    if columns is None:
        names = " or ".join(", ".join(sorted(columns)) for columns in wanted)
        raise SettingsError(f"{location} has not the columns {names}; make the file with ssr export --format {method}")
    for name in sorted(columns | _OPTIONAL):
        is_right, kind = _CHECKS[name]
        if not is_right(row.get(name)):
            raise SettingsError(
                f"{location}: {name} is not {kind}; make the file with ssr export --format {method}", option="source"
            )
    checked: Row = row
    return checked
