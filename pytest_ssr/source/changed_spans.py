"""Find the parts of a file that a change replaces, each as short as whole words allow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pytest_ssr.patch.changes import split_lines
from pytest_ssr.patch.line_matching import edits

_WORD_EDGES = re.compile(rb"\W")


class Span(NamedTuple):
    """A part of the original that changes."""

    first: int
    """The offset of the first byte that changes."""
    last: int
    """The offset after the last one; equal to the first for an insertion."""
    new: bytes
    """What replaces it."""


def changed_spans(original: bytes, changed: bytes) -> Iterator[Span]:
    """Yield the spans of the original that change, each as short as whole words allow."""
    old, new = split_lines(original), split_lines(changed)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    for edit in edits(old, new):
        before, after = b"".join(old[edit.old_from : edit.old_to]), b"".join(new[edit.new_from : edit.new_to])
        yield _narrowed(starts[edit.old_from], before, after)


def _narrowed(start: int, old: bytes, new: bytes) -> Span:
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    while head and not _WORD_EDGES.match(old, head - 1):
        head -= 1
    limit -= head
    tail = next((i for i in range(limit) if old[-1 - i] != new[-1 - i]), limit)
    while tail and not _WORD_EDGES.match(old, len(old) - tail):
        tail -= 1
    # White space at the ends belongs to no node.
    first, last = start + head, start + len(old) - tail
    text, added = old[head : len(old) - tail], new[head : len(new) - tail]
    if text.strip():
        first += len(text) - len(text.lstrip())
        last -= len(text) - len(text.rstrip())
    return Span(first, last, added.strip())
