"""Show changes in their places in the source: each line of the source once, and below it what changes made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from markupsafe import Markup

from harness.service.dashboard.highlighting import coloured_lines
from pytest_ssr.records.candidate_result import CandidateResult

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
_CONTEXT = 4
"""Lines shown before and after a change."""
_MOST_GAP = 2
"""A gap of at most this many lines is shown rather than marked."""
_MOST_CHARACTERS = 2_000
"""Of a line; a longer one is cut."""


class Part(StrEnum):
    """What a line of an excerpt is."""

    SAME = "same"
    REPLACED = "removed"
    """A line of the source that a change replaces."""
    NOTE = "note"
    ADDED = "added"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line of an excerpt, ready for a page."""

    part: Part
    number: int | None
    """Its number in the source."""
    code: Markup | str


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines that a change replaces."""

    first: int
    """The number of the first replaced line, or of the line that follows an insertion."""
    removed: int
    """How many lines are replaced."""
    added: tuple[str, ...]

    @property
    def last(self) -> int:
        """The line after which the new lines are shown."""
        return self.first + self.removed - 1


def edits_of(diff: str, path: str) -> list[Edit] | None:
    """Return the edits of a change, or None if it is not in this file alone."""
    if [line for line in diff.splitlines() if line.startswith("diff --git ")] != [f"diff --git a/{path} b/{path}"]:
        return None
    edits: list[Edit] = []
    lines = diff.split("\n")
    start = next((n for n, line in enumerate(lines) if _HUNK.match(line)), len(lines))
    position = first = removed = 0
    added: list[str] = []
    for line in [*lines[start:], " "]:
        match = _HUNK.match(line)
        if line.startswith("-"):
            first, removed, position = first or position, removed + 1, position + 1
        elif line.startswith("+"):
            first = first or position
            added.append(line[1:])
        elif not line.startswith("\\"):
            if first:
                edits.append(Edit(first, removed, tuple(added)))
            first, removed, added = 0, 0, []
            position = int(match[1]) if match else position + 1
    return edits


def coloured_source(source: str, path: str) -> list[Markup]:
    """Return the lines of a file with syntax colours."""
    return coloured_lines("\n".join(line[:_MOST_CHARACTERS] for line in source.split("\n")), path)


def excerpt(lines: Sequence[Markup], path: str, survivors: Sequence[CandidateResult]) -> list[ShownLine]:
    """Return the lines around surviving changes, with the changes; those in several files are left out.

    lines: those of the whole file.
    """
    placed: dict[int, list[tuple[CandidateResult, Edit]]] = {}
    replaced: set[int] = set()
    shown: set[int] = set()
    for result in survivors:
        for edit in edits_of(result.diff, path) or ():
            placed.setdefault(min(edit.last, len(lines)), []).append((result, edit))
            replaced.update(range(edit.first, edit.first + edit.removed))
            shown.update(range(max(1, edit.first - _CONTEXT), min(len(lines), edit.last + _CONTEXT) + 1))
    found: list[ShownLine] = []
    for number, (first, last) in enumerate(_ranges(sorted(shown))):
        if number:
            found.append(ShownLine(Part.GAP, None, "⋯"))
        for at in range(first, last + 1):
            found.append(ShownLine(Part.REPLACED if at in replaced else Part.SAME, at, lines[at - 1]))
            for result, edit in placed.get(at, ()):
                found += _changed(result, edit, path)
    return found


def _changed(result: CandidateResult, edit: Edit, path: str) -> Iterator[ShownLine]:
    name = result.operator or result.strategy
    detail = f": {result.detail}" if result.detail else ""
    unreached = "" if result.is_reached else ", no test runs it"
    yield ShownLine(Part.NOTE, None, f"survived{unreached}, {name}{detail}")
    if not edit.added:
        yield ShownLine(Part.ADDED, None, "(removed)")
        return
    text = "\n".join(line[:_MOST_CHARACTERS] for line in edit.added)
    yield from (ShownLine(Part.ADDED, None, line) for line in coloured_lines(text, path))


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each group of numbers with no gap to speak of."""
    groups: list[tuple[int, int]] = []
    for number in numbers:
        if groups and number - groups[-1][1] <= _MOST_GAP + 1:
            groups[-1] = (groups[-1][0], number)
        else:
            groups.append((number, number))
    return groups
