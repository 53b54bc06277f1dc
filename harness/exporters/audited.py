"""Add the sharpness of tasks, by the cards of an audit, to the rows of formats that have room for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.exporters.protocol import NUMBER, Format, Row

AUDIT = "audit"
"""The name of the column, or of the key; null if the sharpness is unknown."""
_FACTS = "solve_rate"
"""A format with this column has columns for facts about the task."""


def audited_format(form: Format) -> Format:
    """Return a format whose rows hold the sharpness; the same one if it has no column for that."""
    if form.facts or _FACTS not in form.columns:
        return form
    return replace(form, columns={**form.columns, AUDIT: NUMBER})


def with_sharpness(row: Row, form: Format, sharpness: float | None) -> Row:
    """Return a row with the sharpness of its task, if its format has room for it. form: of `audited_format`."""
    if form.facts:
        return _put(row, form.facts, sharpness)
    return {**row, AUDIT: sharpness} if AUDIT in form.columns else row


def _put(row: dict[str, Any], path: tuple[str, ...], sharpness: float | None) -> dict[str, Any]:
    """Return an object with the sharpness in the object at a path, which is copied."""
    if not path:
        return {**row, AUDIT: sharpness}
    inner = row.get(path[0])
    return {**row, path[0]: _put(inner, path[1:], sharpness)} if isinstance(inner, dict) else row
