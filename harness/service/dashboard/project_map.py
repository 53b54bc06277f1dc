"""Draw the map of a project: its files by size, or the functions of its only file, coloured by surviving changes."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.service.dashboard.tree_map import Rectangle, fitting_label, layout
from pytest_ssr.campaign.score import Score
from pytest_ssr.source.syntax_tree import parse, scopes

MOST_REGIONS = 400
"""Files or functions on the map, the largest ones; smaller ones would not be seen."""
_SIZES = {"wide-only": (960, 420), "narrow": (360, 460)}
"""Width and height by the class of the element that shows it."""
_FAINTEST, _STRONGEST = 0.12, 0.6
"""Opacity of a region's colour; its name stays readable on the strongest."""


@dataclass(frozen=True, slots=True)
class Region:
    """A file or a function."""

    name: str
    short: str
    """Its name without folders or classes, for small areas."""
    lines: int
    address: str = ""
    """Of its changes; empty if nothing was tried."""
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class MapCell:
    """A region on the map."""

    area: Rectangle
    label: str
    title: str
    address: str
    kind: str
    opacity: float


@dataclass(frozen=True, slots=True)
class ProjectMap:
    """The map for screens of one width."""

    css: str
    width: int
    height: int
    cells: Sequence[MapCell]


def project_maps(regions: Sequence[Region]) -> list[ProjectMap]:
    """Return the map of regions for each width."""
    shown = sorted(regions, key=lambda region: (-region.lines, region.name))[:MOST_REGIONS]
    folder = posixpath.commonpath([posixpath.dirname(region.name) for region in shown]) if shown else ""
    times = Counter(region.short for region in shown)
    # A short name that several regions have would not tell them apart.
    shown = [region if times[region.short] == 1 else replace(region, short=region.name) for region in shown]
    maps = []
    for css, (width, height) in _SIZES.items():
        areas = layout([region.lines for region in shown], Rectangle(0, 0, width, height))
        cells = [_cell(region, area, folder) for region, area in zip(shown, areas, strict=True)]
        maps.append(ProjectMap(css, width, height, cells))
    return maps


def function_lines(path: str, source: str) -> dict[str, int]:
    """Return the number of lines of each function of a file, methods included; empty if it cannot be parsed."""
    parsed = parse(path, source.encode())
    lines: Counter[str] = Counter()
    if parsed is None:
        return lines
    for scope in scopes(parsed):
        if scope.kind == "function":
            # Overloads, and definitions under an `if`, share a name.
            lines[scope.qualname] += parsed.data.count(b"\n", scope.start, scope.end) + 1
    return lines


def _cell(region: Region, area: Rectangle, folder: str) -> MapCell:
    label = fitting_label(region.name.removeprefix(f"{folder}/"), area, from_end=True)
    if label.startswith("…"):
        label = fitting_label(region.short, area, from_end=True)
    title = f"{region.name}, {region.lines} lines"
    if region.score is None or not region.score.tried:
        return MapCell(area, label, f"{title}: nothing tried", region.address, "none", 1.0)
    missed = region.score.tried - region.score.noticed
    share = missed / region.score.tried
    return MapCell(
        area,
        label,
        f"{title}: {missed} of {region.score.tried} changes survived",
        region.address,
        "some" if missed else "clean",
        round(_FAINTEST + share * (_STRONGEST - _FAINTEST), 2) if missed else 0.25,
    )
