"""Find lines of code by the names in them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

_MOST_USES = 40
"""A name in more lines than this says nothing about a line."""
_MOST_KEPT = 400
"""Most lines that are kept of a name."""


class LineIndex:
    """The lines of one or more files, by number."""

    def __init__(self) -> None:
        """Start without lines."""
        self._uses = defaultdict[bytes, list[int]](list)
        self._count = 0

    def add(self, names: Iterable[bytes]) -> None:
        """Add a line. names: those in it, each once."""
        for name in names:
            uses = self._uses[name]
            if len(uses) < _MOST_KEPT:
                uses.append(self._count)
        self._count += 1

    def uses(self, name: bytes) -> list[int]:
        """Return the lines that have a name."""
        return self._uses.get(name, [])

    def weight(self, uses: int) -> float:
        """Return how much a name in so many lines tells; rare names tell more."""
        return math.log(1 + self._count / uses) if 0 < uses <= _MOST_USES else 0.0

    def scores(self, names: Iterable[bytes]) -> defaultdict[int, float]:
        """Return how much each line has in common with names; lines without any are left out."""
        scores = defaultdict[int, float](float)
        for name in names:
            uses = self.uses(name)
            weight = self.weight(len(uses))
            if weight:
                for number in uses:
                    scores[number] += weight
        return scores


def best_lines(scores: Mapping[int, float], size: Callable[[int], int], *, room: int, most: int) -> list[int]:
    """Return the numbers of the best lines that fit, in their order.

    size: returns the number of tokens of a line; 0 to leave it out. room: most tokens of all. most: of lines.
    """
    chosen = list[int]()
    for number, _ in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
        tokens = size(number)
        if 0 < tokens <= room:
            chosen.append(number)
            room -= tokens
        if len(chosen) == most:
            break
    return sorted(chosen)
