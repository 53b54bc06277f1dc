"""Compute the geometry of charts; `templates/charts.html` draws it. All lengths are in units of the view box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360, 190
"""Fits a phone without scaling, so that its text stays readable."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 10, 10, 28
_TICKS = 4
_MOST_POINTS = 300
"""More points than this cannot be distinguished at this width."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis."""

    position: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A point or a column, with its description."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with a vertical and a horizontal axis."""

    title: str
    summary: str
    """What it shows, for those who do not see it."""
    marks: tuple[Mark, ...]
    path: str
    """Points of the line, as SVG expects them; empty for columns."""
    ticks: tuple[Tick, ...]
    """Of the vertical axis."""
    labels: tuple[Tick, ...]
    """Of the horizontal axis."""
    guide: float | None = None
    """Height of a horizontal line for comparison."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def line_chart(
    title: str, points: Sequence[tuple[str, float]], *, low: float = 0.0, high: float = 1.0, guide: float | None = None
) -> Chart | None:
    """Return a line through points in order, each a label and a value, or None without points.

    low, high: the least range of the vertical axis; it grows if values exceed it.
    """
    if not points:
        return None
    shown = _thinned(points)
    values = [value for _, value in shown]
    low, high = min(low, *values), max(high, *values)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(shown) - 1)
    marks = tuple(
        Mark(round(_LEFT + n * step, 1), _height(value, low, high), 0, 0, f"{label}: {number(value)}")
        for n, (label, value) in enumerate(shown)
    )
    return Chart(
        title,
        f"{title}: from {number(values[0])} to {number(values[-1])} over {len(points)} values",
        marks,
        " ".join(f"{mark.x},{mark.y}" for mark in marks),
        _ticks(low, high),
        (Tick(_LEFT, shown[0][0]), Tick(WIDTH - _RIGHT, shown[-1][0])) if len(shown) > 1 else (),
        None if guide is None else _height(guide, low, high),
    )


def column_chart(title: str, columns: Sequence[tuple[str, float]]) -> Chart | None:
    """Return columns, each with a label and a count, or None if all are zero."""
    high = max((value for _, value in columns), default=0)
    if not high:
        return None
    step = (WIDTH - _LEFT - _RIGHT) / len(columns)
    marks = tuple(
        Mark(
            round(_LEFT + n * step + 1, 1),
            _height(value, 0, high),
            round(step - 2, 1),
            round(HEIGHT - _BOTTOM - _height(value, 0, high), 1),
            f"{label}: {number(value)}",
        )
        for n, (label, value) in enumerate(columns)
    )
    every = max(1, math.ceil(len(columns) / 6))
    labels = [Tick(round(_LEFT + (n + 0.5) * step, 1), label) for n, (label, _) in enumerate(columns)]
    most = max(columns, key=lambda column: column[1])
    return Chart(title, f"{title}: most at {most[0]}", marks, "", _ticks(0, high), tuple(labels[::every]))


def number(value: float) -> str:
    """Return a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def _thinned(points: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
    """Return at most `_MOST_POINTS` points: means of neighbours, with the label of the first."""
    if len(points) <= _MOST_POINTS:
        return points
    size = math.ceil(len(points) / _MOST_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[0][0], sum(value for _, value in group) / len(group)) for group in groups]


def _height(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.0
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def _ticks(low: float, high: float) -> tuple[Tick, ...]:
    step = (high - low) / _TICKS or 1.0
    values = [low + n * step for n in range(_TICKS + 1)]
    return tuple(Tick(_height(value, low, high), number(value)) for value in values)
