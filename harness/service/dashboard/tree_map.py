"""Lay out a tree map: rectangles whose areas are in proportion to weights, as square as possible.

The method is the squarified tree map of Bruls, Huizing and van Wijk (2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LETTER, _LINE = 7.2, 16
"""Width of a letter and height of a line at the size of a map's text."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of a tree map."""

    x: float
    y: float
    width: float
    height: float

    def inset(self, margin: float, *, top: float = 0.0) -> Rectangle:
        """Return the rectangle within a margin; `top` is added to the margin of the upper edge."""
        width, height = max(0.0, self.width - 2 * margin), max(0.0, self.height - 2 * margin - top)
        return Rectangle(self.x + margin, self.y + margin + top, width, height)


def layout(weights: Sequence[float], space: Rectangle) -> list[Rectangle]:
    """Return a rectangle for each weight, in the same order. weights: positive, largest first."""
    total = sum(weights)
    if not weights or total <= 0 or space.width <= 0 or space.height <= 0:
        return [Rectangle(space.x, space.y, 0, 0) for _ in weights]
    scale = space.width * space.height / total
    areas = [weight * scale for weight in weights]
    placed: list[Rectangle] = []
    while areas:
        side = min(space.width, space.height)
        count = _row_length(areas, side)
        row, areas = areas[:count], areas[count:]
        placed += _row(row, space)
        space = _rest(sum(row), space)
    return placed


def fitting_label(text: str, area: Rectangle, *, from_end: bool = False) -> str:
    """Return as much of a name as fits into a rectangle; empty if hardly any does."""
    letters = int((area.width - 10) / _LETTER)
    if letters < 4 or area.height < _LINE + 4:
        return ""
    if len(text) <= letters:
        return text
    return "…" + text[1 - letters :] if from_end else text[: letters - 1] + "…"


def _row_length(areas: Sequence[float], side: float) -> int:
    """Return how many areas to place along the shorter side: adding one more would make the worst one narrower."""
    count, worst = 1, _worst(areas[:1], side)
    while count < len(areas):
        following = _worst(areas[: count + 1], side)
        if following > worst:
            break
        count, worst = count + 1, following
    return count


def _worst(row: Sequence[float], side: float) -> float:
    """Return the largest ratio of the sides of a row's rectangles."""
    depth = sum(row) / side
    return max(max(depth * depth / area, area / (depth * depth)) for area in (row[0], row[-1]))


def _row(row: Sequence[float], space: Rectangle) -> list[Rectangle]:
    is_column = space.width >= space.height
    depth = sum(row) / (space.height if is_column else space.width)
    placed, offset = [], 0.0
    for area in row:
        length = area / depth
        if is_column:
            placed.append(Rectangle(space.x, space.y + offset, depth, length))
        else:
            placed.append(Rectangle(space.x + offset, space.y, length, depth))
        offset += length
    return placed


def _rest(area: float, space: Rectangle) -> Rectangle:
    if space.width >= space.height:
        depth = area / space.height
        return Rectangle(space.x + depth, space.y, max(1e-9, space.width - depth), space.height)
    depth = area / space.width
    return Rectangle(space.x, space.y + depth, space.width, max(1e-9, space.height - depth))
