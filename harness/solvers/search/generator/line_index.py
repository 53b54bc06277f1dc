"""Find lines of code by the names in them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable

_MOST_USES = 40
"""A name in more lines than this says nothing about a line."""


class LineIndex:
    """The lines of one or more files, by number."""

    def __init__(self, lines: Iterable[Collection[bytes]]) -> None:
        """Index lines. lines: the names of each."""
        self._uses = defaultdict[bytes, list[int]](list)
        self._count = 0
        for number, names in enumerate(lines):
            self._count = number + 1
            for name in sorted(names):
                self._uses[name].append(number)

    def uses(self, name: bytes) -> list[int]:
        """Return the lines that have a name."""
        return self._uses.get(name, [])

    def scores(self, names: Iterable[bytes]) -> defaultdict[int, float]:
        """Return how much each line has in common with names; rare names count more."""
        scores = defaultdict[int, float](float)
        for name in names:
            uses = self.uses(name)
            if 0 < len(uses) <= _MOST_USES:
                weight = math.log(1 + self._count / len(uses))
                for number in uses:
                    scores[number] += weight
        return scores
