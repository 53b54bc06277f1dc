"""Compute the map of what tests miss: files as a tree map, functions by surviving changes, and their diffs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.service.dashboard.highlighting import HighlightedDiff, highlighted_diff
from harness.service.dashboard.reading import Reads, Row
from harness.service.dashboard.tree_map import Rectangle, fitting_label, layout

_SIZES = {"wide-only": (960, 480), "narrow": (360, 520)}
"""Width and height by the class of the element that shows it."""
_MOST_FILES, _MOST_CELLS = 60, 40
_FIRST_ROWS = 30
_TITLE, _MARGIN = 18, 2
_FAINTEST, _STRONGEST = 0.08, 0.5
"""Opacity of a function's colour; its text stays readable on the strongest."""

Function = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """A function on the map."""

    area: Rectangle
    label: str
    title: str
    address: str
    survived: int
    opacity: float


@dataclass(frozen=True, slots=True)
class FileBox:
    """A file on the map."""

    area: Rectangle
    file: str
    label: str
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class GapMap:
    """A tree map for screens of one width."""

    css: str
    width: int
    height: int
    files: Sequence[FileBox]


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function in the list."""

    file: str
    scope: str
    survived: int
    tried: int
    address: str
    """Of its diffs; empty if none is shown."""


@dataclass(frozen=True, slots=True)
class SurvivingChange:
    """A change that no test noticed."""

    line: int
    strategy: str
    operator: str
    detail: str
    diff: HighlightedDiff


@dataclass(frozen=True, slots=True)
class SurvivorGroup:
    """The surviving changes of a function."""

    anchor: str
    file: str
    scope: str
    changes: Sequence[SurvivingChange]


@dataclass(frozen=True, slots=True)
class Campaign:
    """A choice of the form."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class GapsPage:
    """What the tests of a project miss."""

    campaign: str
    campaigns: Sequence[Campaign]
    maps: Sequence[GapMap]
    functions: Sequence[FunctionRow]
    survivors: Sequence[SurvivorGroup]
    all_functions: int
    """The number of functions, also of those that are not shown."""
    all_survivors: int
    """The number of surviving changes, also of those that are not shown."""

    @property
    def first(self) -> Sequence[FunctionRow]:
        """The functions that the list begins with."""
        return self.functions[:_FIRST_ROWS]

    @property
    def more(self) -> Sequence[FunctionRow]:
        """The others that have survivors, which are shown on demand; those without are on the map alone."""
        return [function for function in self.functions[_FIRST_ROWS:] if function.survived]

    @property
    def shown_survivors(self) -> int:
        """The number of surviving changes that are shown."""
        return sum(len(group.changes) for group in self.survivors)

    @property
    def left_out(self) -> int:
        """The number of functions that neither the map nor the list shows."""
        return self.all_functions - len(self.functions)


def gaps_page(reads: Reads, campaign: str, *, jump: Callable[[str], str] = "#{}".format) -> GapsPage:
    """Return the map of one campaign, or of all if `campaign` is empty. jump: returns the address of an element."""
    rows = reads.functions(campaign or None)
    groups = _groups(reads, campaign)
    anchors = {(group.file, group.scope): jump(group.anchor) for group in groups}
    functions = [
        FunctionRow(row.file, row.scope, row.survived, row.tried, anchors.get((row.file, row.scope), ""))
        for row in rows
    ]
    campaigns = [
        Campaign(row.campaign, f"{row.project or 'project not known'} ({row.campaign[:8]})")
        for row in reads.campaigns()
    ]
    maps = [gap_map(functions, css, *size) for css, size in _SIZES.items()] if functions else []
    return GapsPage(campaign, campaigns, maps, functions, groups, *reads.gap_counts(campaign or None))


def gap_map(functions: Sequence[FunctionRow], css: str, width: int, height: int) -> GapMap:
    """Return the tree map of functions; those that were tried most get most space."""
    by_file: dict[str, list[FunctionRow]] = {}
    for function in functions:
        by_file.setdefault(function.file, []).append(function)
    weights = {file: sum(function.tried for function in found) for file, found in by_file.items()}
    files = sorted(weights, key=lambda file: (-weights[file], file))[:_MOST_FILES]
    areas = layout([weights[file] for file in files], Rectangle(0, 0, width, height))
    return GapMap(
        css, width, height, [_file_box(file, area, by_file[file]) for file, area in zip(files, areas, strict=True)]
    )


def _file_box(file: str, area: Rectangle, functions: Sequence[FunctionRow]) -> FileBox:
    label = fitting_label(file, area, from_end=True)
    shown = sorted(functions, key=lambda function: (-function.tried, function.scope))[:_MOST_CELLS]
    inner = area.inset(_MARGIN, top=_TITLE if label else 0)
    areas = layout([function.tried for function in shown], inner)
    return FileBox(area, file, label, [_cell(function, spot) for function, spot in zip(shown, areas, strict=True)])


def _cell(function: FunctionRow, area: Rectangle) -> Cell:
    share = function.survived / function.tried
    scope = function.scope or "(module)"
    return Cell(
        area,
        fitting_label(scope, area),
        f"{scope} in {function.file}: {function.survived} of {function.tried} changes survived",
        function.address,
        function.survived,
        round(_FAINTEST + share * (_STRONGEST - _FAINTEST), 2) if function.survived else 1.0,
    )


def _groups(reads: Reads, campaign: str) -> list[SurvivorGroup]:
    found: dict[Function, list[SurvivingChange]] = {}
    for row, record in reads.survivors(campaign or None):
        found.setdefault((row.file, row.scope), []).append(_change(row, record))
    ordered = sorted(found, key=lambda key: (-len(found[key]), key))
    return [SurvivorGroup(f"gap-{n}", *key, found[key]) for n, key in enumerate(ordered)]


def _change(row: Row, record: Mapping[str, object]) -> SurvivingChange:
    return SurvivingChange(
        row.line,
        row.strategy,
        row.operator,
        str(record.get("detail", "")),
        highlighted_diff(str(record.get("diff", ""))),
    )
