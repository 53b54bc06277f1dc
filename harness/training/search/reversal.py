"""Recognize repairs that give the original code, by its text."""

from __future__ import annotations

import bisect
import difflib
import itertools
from collections.abc import Sequence

from harness.solvers.search.generator.code_stream import stream_of
from harness.solvers.search.patterns import Repair
from harness.solvers.search.token_model import tokens_of
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, splice

_CLOSING = (b")", b"]", b"}")


class Reversal:
    """Recognizes the repairs of a function that give its original code, apart from comments and blank space."""

    def __init__(self, source: ParsedSource, scope: Scope, original: bytes) -> None:
        """Prepare to compare. original: the text of the original function."""
        self._data, self._start, self._end = source.data, scope.start, scope.end
        self._target, self._target_code = code_lines(original), _code(original)
        lines = source.data[scope.start : scope.end].splitlines(keepends=True)
        self._starts = list(itertools.accumulate((len(line) for line in lines[:-1]), initial=scope.start))
        codes = [code_lines(line) for line in lines]
        self._counts = [0, *itertools.accumulate(len(code) for code in codes)]
        code = [text for texts in codes for text in texts]
        self._same_above = _common(code, self._target)
        self._same_below = _common(code[::-1], self._target[::-1])

    def matches(self, repair: Repair) -> bool:
        """Return whether a repair gives the original code."""
        first, last = min(e.start for e in repair.edits), max(e.end for e in repair.edits)
        if first < self._starts[0] or last > self._end:
            return False
        top, bottom = (bisect.bisect_right(self._starts, offset) for offset in (first, last))
        above, below = self._counts[top - 1], self._counts[-1] - self._counts[bottom]
        if above > self._same_above or below > self._same_below or above + below > len(self._target):
            return False
        start = self._starts[top - 1]
        end = self._starts[bottom] if bottom < len(self._starts) else self._end
        edits = [Edit(e.start - start, e.end - start, e.text) for e in repair.edits]
        try:
            changed = splice(self._data[start:end], edits)
        except ValueError:
            return False
        return code_lines(changed) == self._target[above : len(self._target) - below]

    def matches_apart_from_breaks(self, repair: Repair) -> bool:
        """Return whether a repair gives the original code, apart from line breaks and last commas in brackets, too."""
        if any(e.start < self._start or e.end > self._end for e in repair.edits):
            return False
        edits = [Edit(e.start - self._start, e.end - self._start, e.text) for e in repair.edits]
        try:
            return _code(splice(self._data[self._start : self._end], edits)) == self._target_code
        except ValueError:
            return False


def _code(function: bytes) -> list[bytes]:
    texts = stream_of(function).texts
    return [t for t, following in itertools.zip_longest(texts, texts[1:]) if t != b"," or following not in _CLOSING]


def code_lines(code: bytes) -> list[bytes]:
    """Return the lines of code without comments, blank lines, and blank space after their indentation."""
    return [
        line[: len(line) - len(line.lstrip())] + b" ".join(texts)
        for line in code.splitlines()
        if (texts := [t.text for t in tokens_of(line)])
    ]


def changed_lines(one: bytes, other: bytes) -> int:
    """Return the number of lines in which two pieces of code differ, the larger of both sides."""
    matcher = difflib.SequenceMatcher(None, code_lines(one), code_lines(other), autojunk=False)
    changes = [(j - i, n - m) for tag, i, j, m, n in matcher.get_opcodes() if tag != "equal"]
    return max(sum(a for a, _ in changes), sum(b for _, b in changes))


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return the number of equal items at the beginning of two sequences."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
