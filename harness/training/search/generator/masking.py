"""Cut holes into code: the code that was there is what the generator learns to write."""

from __future__ import annotations

import random
from collections import defaultdict

from harness.solvers.search.generator.cuts import cuts_of
from harness.solvers.search.generator.holes import Hole, HoleKind, holes_of
from pytest_ssr.source.syntax_tree import ParsedSource, Scope

_WEIGHTS = {
    HoleKind.BLOCK: 6.0,
    HoleKind.BEFORE: 6.0,
    HoleKind.AFTER: 3.0,
    HoleKind.ELSE: 1.0,
    HoleKind.VALUE: 4.0,
    HoleKind.SUFFIX: 1.5,
    HoleKind.ARGUMENT: 1.5,
    HoleKind.RIGHT: 1.0,
    HoleKind.LEFT: 0.7,
    HoleKind.BASES: 10.0,
}
_EMPTY_SHARE = 0.2
"""Share of holes at which nothing is missing."""
_ALWAYS_FILLED = (HoleKind.BLOCK, HoleKind.VALUE)


def masked(source: ParsedSource, scope: Scope, rng: random.Random, count: int) -> list[Hole]:
    """Return some holes of a function, or of the head of a class; a hole whose span is empty lacks nothing."""
    filled, empty = defaultdict[HoleKind, list[Hole]](list), defaultdict[HoleKind, list[Hole]](list)
    for hole in cuts_of(source, scope):
        filled[hole.kind].append(hole)
    for hole in holes_of(source, scope):
        if hole.kind not in _ALWAYS_FILLED:
            empty[hole.kind].append(hole)
    chosen = dict[Hole, None]()
    for _ in range(count):
        pool = empty if empty and (not filled or rng.random() < _EMPTY_SHARE) else filled
        if pool:
            kinds = sorted(pool)
            kind = rng.choices(kinds, [_WEIGHTS[k] for k in kinds])[0]
            chosen[rng.choice(pool[kind])] = None
    return list(chosen)
