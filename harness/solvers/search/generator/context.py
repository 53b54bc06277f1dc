"""Choose what the network sees of the code around a hole: the function, and similar lines of the same file."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from harness.solvers.search.generator.code_stream import LAYOUT, NEWLINE, stream_of
from harness.solvers.search.generator.holes import Hole
from pytest_ssr.source.syntax_tree import ParsedSource, Scope

MOST_RETRIEVED, MOST_HEAD, MOST_LEFT, MOST_RIGHT = 96, 24, 96, 48
LENGTH = MOST_RETRIEVED + MOST_HEAD + MOST_LEFT + MOST_RIGHT + 1
"""Most tokens of a context."""
_NEAR_LEFT, _NEAR_RIGHT = 24, 16
_MOST_USES = 40
"""A name in more lines than this says nothing about a line."""
_LONGEST_LINE = 24
_LINES = 10


@dataclass(frozen=True, slots=True)
class Context:
    """The tokens around a hole, as the network sees them."""

    texts: list[bytes]
    hole: int
    """The index of the hole in them; its own text is empty."""
    parts: list[int]
    """For each token: 0 for a similar line, 1 for the function before the hole, 2 behind it, 3 for the hole."""


class FileContext:
    """The lines of a file, by their names."""

    def __init__(self, source: ParsedSource) -> None:
        """Read the file."""
        self.stream = stream = stream_of(source.data)
        self._lines: list[tuple[int, int]] = []
        start = 0
        for index, text in enumerate(stream.texts):
            if text == NEWLINE:
                self._lines.append((start, index))
                start = index + 1
        self._uses: dict[bytes, list[int]] = defaultdict(list)
        for number, (first, last) in enumerate(self._lines):
            for name in {stream.texts[i] for i in range(first, last) if stream.is_name[i]}:
                self._uses[name].append(number)

    def _scores(self, names: Iterable[bytes]) -> Counter[int]:
        """Return how much each line has in common with names; rare names count more."""
        scores = Counter[int]()
        for name in names:
            uses = self._uses.get(name, ())
            if 0 < len(uses) <= _MOST_USES:
                weight = math.log(1 + len(self._lines) / len(uses))
                for number in uses:
                    scores[number] += weight  # type: ignore[assignment]
        return scores

    def scope_scores(self, scope: Scope) -> Counter[int]:
        """Return how much each line has in common with a function."""
        first, last = self.stream.index(scope.start), self.stream.index(scope.end)
        return self._scores(sorted({self.stream.texts[i] for i in range(first, last) if self.stream.is_name[i]}))

    def context(self, scope: Scope, scope_scores: Counter[int], hole: Hole) -> Context:
        """Return the context of a hole. scope_scores: those of its function."""
        texts, is_name = self.stream.texts, self.stream.is_name
        first, last = self.stream.index(scope.start), self.stream.index(scope.end)
        at, behind = self.stream.index(hole.start), self.stream.index(hole.end)
        while at > first and texts[at - 1] in LAYOUT:
            at -= 1
        while behind < last and texts[behind] in LAYOUT:
            behind += 1
        start, stop = max(first, at - MOST_LEFT), min(last, behind + MOST_RIGHT)
        head = texts[first : min(start, first + MOST_HEAD)]
        near = {texts[i] for i in range(max(first, at - _NEAR_LEFT), at) if is_name[i]}
        near |= {texts[i] for i in range(behind, min(last, behind + _NEAR_RIGHT)) if is_name[i]}
        retrieved = self._retrieved(scope_scores, sorted(near), start, stop, (at, behind))
        left, right = texts[start:at], texts[behind:stop]
        joined = [*retrieved, *head, *left]
        parts = [0] * len(retrieved) + [1] * (len(head) + len(left)) + [3] + [2] * len(right)
        return Context([*joined, b"", *right], len(joined), parts)

    def _retrieved(
        self, scope_scores: Counter[int], near: list[bytes], start: int, stop: int, missing: tuple[int, int]
    ) -> list[bytes]:
        """Return the lines of the file that are most similar, without those between two indices, in their order."""
        scores = Counter(scope_scores)
        for number, score in self._scores(near).items():
            scores[number] += 2 * score
            # What stands beside a line like those around the hole may be what is missing.
            scores[number + 1] += score
            scores[number - 1] += score
        chosen, room = list[int](), MOST_RETRIEVED
        for number, _ in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
            if not 0 <= number < len(self._lines):
                continue
            first, last = self._lines[number]
            if (first < stop and last > start) or (first < missing[1] and last >= missing[0]):
                continue
            size = min(last - first, _LONGEST_LINE) + 1
            if size <= room:
                chosen.append(number)
                room -= size
            if len(chosen) == _LINES:
                break
        result = list[bytes]()
        for number in sorted(chosen):
            first, last = self._lines[number]
            result += [t for t in self.stream.texts[first : min(last, first + _LONGEST_LINE)] if t not in LAYOUT]
            result.append(NEWLINE)
        return result
