"""Find the changes between old and new lines, and group them into hunks.

`difflib.SequenceMatcher` is quadratic in repeated lines, so long stretches are first cut at lines that occur once on
both sides and in the same order (patience diff, Bram Cohen).
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SHORT_LINES = 200


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines `old_from:old_to` become `new_from:new_to`, 0-based and half-open."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def edits(old: Sequence[bytes], new: Sequence[bytes]) -> list[Edit]:
    """Return the changes between two files in order, with at least one equal line between any two."""
    merged: list[Edit] = []
    for edit in _edits(old, new, Edit(0, len(old), 0, len(new))):
        if merged and merged[-1].old_to == edit.old_from and merged[-1].new_to == edit.new_from:
            merged[-1] = Edit(merged[-1].old_from, edit.old_to, merged[-1].new_from, edit.new_to)
        else:
            merged.append(edit)
    return merged


def groups(changes: Sequence[Edit], context: int) -> Iterator[list[Edit]]:
    """Yield the changes of each hunk: those whose context, in lines on each side, overlaps or touches."""
    group: list[Edit] = []
    for edit in changes:
        if group and edit.old_from - group[-1].old_to > 2 * context:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _edits(old: Sequence[bytes], new: Sequence[bytes], span: Edit) -> Iterator[Edit]:
    a, b, c, d = span.old_from, span.old_to, span.new_from, span.new_to
    while a < b and c < d and old[a] == new[c]:
        a, c = a + 1, c + 1
    while a < b and c < d and old[b - 1] == new[d - 1]:
        b, d = b - 1, d - 1
    if a == b or c == d:
        if a < b or c < d:
            yield Edit(a, b, c, d)
        return
    anchors = _anchors(old[a:b], new[c:d]) if min(b - a, d - c) > _SHORT_LINES else []
    if not anchors:
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old[a:b], new[c:d], autojunk=False).get_opcodes():
            if tag != "equal":
                yield Edit(a + i1, a + i2, c + j1, c + j2)
        return
    at_old, at_new = a, c
    for i, j in anchors:
        yield from _edits(old, new, Edit(at_old, a + i, at_new, c + j))
        at_old, at_new = a + i + 1, c + j + 1
    yield from _edits(old, new, Edit(at_old, b, at_new, d))


def _anchors(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the longest increasing sequence of positions of lines that are unique on both sides."""
    old_counts, new_counts = Counter(old), Counter(new)
    positions = {line: j for j, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(i, positions[line]) for i, line in enumerate(old) if old_counts[line] == 1 and line in positions]
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for index, (_, j) in enumerate(pairs):
        at = bisect_left(ends, j)
        previous.append(last[at - 1] if at else -1)
        ends[at : at + 1] = [j]
        last[at : at + 1] = [index]
    chain: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = previous[index]
    return chain[::-1]
