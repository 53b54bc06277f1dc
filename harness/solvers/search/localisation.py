"""Localise a fault by the tests that reach each statement (Ochiai; Abreu et al., TAIC PART 2007).

A statement that only failing tests reach is the most suspicious. Code that runs at import is reached by all tests. A
missing statement changes which statements around it run, so the score of the whole function also counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pytest_ssr.execution.coverage_map import CoverageMap

_FUNCTION_SHARE = 0.25


def ochiai(failing_here: int, passing_here: int, failing: int) -> float:
    """Return the suspicion of a statement, 0 to 1, from the numbers of tests that reach it."""
    if not failing_here:
        return 0.0
    return failing_here / math.sqrt(failing * (failing_here + passing_here))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The suspicion scores of lines."""

    lines: Mapping[str, Mapping[int, float]]
    """Maps a path, then a 1-based line, to the score."""
    _highest: dict[tuple[str, int, int], float] = field(default_factory=dict, compare=False)
    """The highest score of each function asked for."""

    def of(self, path: str, first: int, last: int, *, function: tuple[int, int]) -> float:
        """Return the score of lines of a function: their highest score, combined with the function's highest.

        Lines at which no statement starts have the score of the nearest scored line above.
        """
        scores = self.lines.get(path, {})
        begin, end = function
        if (path, begin, end) not in self._highest:
            highest = max((scores.get(n, 0.0) for n in range(begin, end + 1)), default=0.0)
            self._highest[path, begin, end] = highest
        function_score = self._highest[path, begin, end]
        own = max((scores.get(n, 0.0) for n in range(first, last + 1)), default=0.0)
        if not own:
            above = next((scores[n] for n in range(first - 1, begin - 1, -1) if n in scores), 0.0)
            own = above
        return (1 - _FUNCTION_SHARE) * own + _FUNCTION_SHARE * function_score

    def paths(self) -> list[str]:
        """Return the files with a suspicious line, the most suspicious first."""
        tops = {p: max(lines.values()) for p, lines in self.lines.items() if lines}
        return sorted((p for p, top in tops.items() if top > 0), key=lambda p: (-tops[p], p))


def localise(coverage: CoverageMap, failing: Collection[str], passing: Collection[str]) -> Suspicion:
    """Return the scores of all lines that a failing test reaches."""
    bits = {name: 1 << bit for bit, name in enumerate(coverage.tests)}
    bad, good = sum(bits[n] for n in failing if n in bits), sum(bits[n] for n in passing if n in bits)
    count = bad.bit_count()
    lines: dict[str, dict[int, float]] = {}
    for path, spots in coverage.spots.items():
        loaded = coverage.at_import.get(path, set())
        for spot, reached in spots.items():
            here = reached | (bad | good if spot in loaded else 0)
            score = ochiai((here & bad).bit_count(), (here & good).bit_count(), count)
            if score:
                line = spot[0]
                lines.setdefault(path, {})[line] = max(score, lines.get(path, {}).get(line, 0.0))
    return Suspicion(lines)
