"""Merge several changed versions of a file into one, unless their changes conflict.

Each version is compared with the original by whole lines, as `diff3` does (Khanna, Kunal and Pierce, 2007); unlike in
`diff3`, changes that touch each other are a conflict too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import pairwise

from pytest_ssr.source.syntax_tree import Edit, splice

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_MAX_COMPARED_LINES = 3000


def merge(original: bytes | None, versions: Sequence[bytes | None]) -> bytes | None:
    """Return the original with the changes of all versions.

    None if one deletes the file (or it is new) and there is another, if one changes nothing, or if two conflict.
    """
    if len(versions) == 1:
        return versions[0]
    edits: list[Edit] = []
    for version in versions:
        if original is None or version is None or version == original:
            return None
        edits += line_edits(original, version)
    if original is None or _conflict(edits):
        return None
    return splice(original, edits)


def line_edits(old: bytes, new: bytes) -> list[Edit]:
    """Return the edits, in whole lines, that turn one text into another; a very long stretch is one edit."""
    before: list[bytes] = _LINE.findall(old)
    after: list[bytes] = _LINE.findall(new)
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    middle_old, middle_new = before[head : len(before) - tail], after[head : len(after) - tail]
    return [
        Edit(starts[head + i1], starts[head + i2], b"".join(middle_new[j1:j2]))
        for i1, i2, j1, j2 in _changes(middle_old, middle_new)
    ]


def _changes(old: list[bytes], new: list[bytes]) -> list[tuple[int, int, int, int]]:
    if max(len(old), len(new)) > _MAX_COMPARED_LINES:
        return [(0, len(old), 0, len(new))]
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in opcodes if tag != "equal"]


def _conflict(edits: Sequence[Edit]) -> bool:
    """Return whether two edits overlap or touch."""
    ordered = sorted(edits, key=lambda e: (e.start, e.end))
    return any(a.end >= b.start for a, b in pairwise(ordered))
