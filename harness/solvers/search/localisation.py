"""Which statements a fault may lie in, by the tests that reach them (Ochiai; Abreu et al., TAIC PART 2007).

A statement that failing tests reach and passing ones do not is the most suspicious. What runs at import is reached by
all tests alike. Around a statement that is missing others are run, or no longer: so a function's own score counts, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pytest_ssr.execution.reach import Reach

_OF_FUNCTION = 0.25


def ochiai(failing_here: int, passing_here: int, failing: int) -> float:
    """Return the suspicion of a statement, 0 to 1."""
    if not failing_here:
        return 0.0
    return failing_here / math.sqrt(failing * (failing_here + passing_here))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Scores of lines."""

    lines: Mapping[str, Mapping[int, float]]
    """Path, then 1-based line, to the score."""

    def of(self, path: str, first: int, last: int, *, function: tuple[int, int]) -> float:
        """Return the score of lines of a function: the highest among them, and a share of the function's highest.

        Lines that are no start of a statement count as the nearest one above.
        """
        known = self.lines.get(path, {})
        begin, end = function
        whole = max((known.get(n, 0.0) for n in range(begin, end + 1)), default=0.0)
        own = max((known.get(n, 0.0) for n in range(first, last + 1)), default=0.0)
        if not own:
            above = next((known[n] for n in range(first - 1, begin - 1, -1) if n in known), 0.0)
            own = above
        return (1 - _OF_FUNCTION) * own + _OF_FUNCTION * whole

    def paths(self) -> list[str]:
        """Return the files with a suspicious line, the most suspicious first."""
        tops = {p: max(lines.values()) for p, lines in self.lines.items() if lines}
        return sorted((p for p, top in tops.items() if top > 0), key=lambda p: (-tops[p], p))


def localise(reach: Reach, failing: Collection[str], passing: Collection[str]) -> Suspicion:
    """Return the scores of all lines that a failing test reaches."""
    bits = {name: 1 << place for place, name in enumerate(reach.tests)}
    bad, good = sum(bits[n] for n in failing if n in bits), sum(bits[n] for n in passing if n in bits)
    count = bad.bit_count()
    lines: dict[str, dict[int, float]] = {}
    for path, spots in reach.spots.items():
        loaded = reach.at_import.get(path, set())
        for spot, reached in spots.items():
            here = reached | (bad | good if spot in loaded else 0)
            score = ochiai((here & bad).bit_count(), (here & good).bit_count(), count)
            if score:
                line = spot[0]
                lines.setdefault(path, {})[line] = max(score, lines.get(path, {}).get(line, 0.0))
    return Suspicion(lines)
