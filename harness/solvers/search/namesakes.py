"""Repair a function with pieces of the project's other functions of the same name.

Classes with one interface, and copies of a function, often share lines. Of 330 static bugs of eight packages that no
pattern repairs, 22 lack code that stands in a function of the same name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.solvers.search.generator.code_stream import LAYOUT, stream_of, trimmed
from harness.solvers.search.generator.cuts import cuts_of
from harness.solvers.search.generator.filling import NAMESAKE, filled, with_share
from harness.solvers.search.generator.holes import Hole, holes_of
from harness.solvers.search.patterns import Repair
from harness.solvers.search.project_files import ProjectFiles
from pytest_ssr.source.syntax_tree import ParsedSource, Scope

_MOST_REPAIRS = 60
_MOST_PLACES = 200
"""Most holes of a function, and most pieces of a namesake."""
_MOST_TOKENS = 150
"""Most tokens of a piece."""
_SIDE = 4
"""Number of tokens on each side of a piece, and of a hole, that are compared."""
_CHANCES = (0.0, 0.0, 0.0, 0.0, 0.011, 0.011, 0.011, 0.065, 0.065)
"""The probability that a piece is right, by its likeness: of 13,227 pieces for static bugs of 14 projects, 10 of the
10,217 with a likeness below 4 were right, 32 of 2,933 with one of 4 to 6, and 5 of 77 with a higher one."""
_MOST_SHARE = 0.3
"""Largest share of these repairs in the weight of a function."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A hole, or a piece of another function, with the tokens around it."""

    hole: Hole
    texts: Sequence[bytes]
    left: Sequence[bytes]
    """Before it, the nearest first."""
    right: Sequence[bytes]

    def likeness(self, other: _Place) -> int:
        """Return the number of equal tokens next to both."""
        return _equal(self.left, other.left) + _equal(self.right, other.right)


def with_namesakes(source: ParsedSource, scope: Scope, repairs: Sequence[Repair], files: ProjectFiles) -> list[Repair]:
    """Return the repairs of a function and those with pieces of namesakes; the sum of the weights stays as it is."""
    return with_share(repairs, _repairs(source, scope, files), lambda chance: min(_MOST_SHARE, chance))


def _repairs(source: ParsedSource, scope: Scope, files: ProjectFiles) -> list[Repair]:
    """Return repairs, those first whose pieces stand in the likest place; their weights are probabilities."""
    if scope.kind != "function":
        return []
    namesakes = files.namesakes(source, scope)
    pieces = [place for other, own in namesakes for place in _places(other, own, cuts_of(other, own), least=1)]
    if not pieces:
        return []
    pairs = [
        (likeness, hole, piece)
        for hole in _places(source, scope, holes_of(source, scope), least=0)
        for piece in pieces
        if piece.hole.kind is hole.hole.kind and _CHANCES[likeness := hole.likeness(piece)]
    ]
    found: dict[tuple[Hole, tuple[bytes, ...]], Repair] = {}
    for likeness, hole, piece in sorted(pairs, key=lambda pair: -pair[0]):
        key = hole.hole, tuple(piece.texts)
        if key not in found:
            repair = filled(source, scope, hole.hole, piece.texts, pattern=NAMESAKE, weight=_CHANCES[likeness])
            if repair is not None:
                found[key] = repair
        if len(found) == _MOST_REPAIRS:
            break
    return list(found.values())


def _places(source: ParsedSource, scope: Scope, holes: Iterator[Hole], *, least: int) -> list[_Place]:
    """Return the first holes of a function with what is in them and around them. least: tokens in a hole."""
    stream, places = stream_of(source.data[scope.start : scope.end]), list[_Place]()
    for hole in dict.fromkeys(itertools.islice(holes, _MOST_PLACES)):
        start, end = stream.index(hole.start - scope.start), stream.index(hole.end - scope.start)
        if not least <= end - start <= _MOST_TOKENS:
            continue
        left = [t for t in stream.texts[max(0, start - 2 * _SIDE) : start] if t not in LAYOUT][-_SIDE:]
        right = [t for t in stream.texts[end : end + 2 * _SIDE] if t not in LAYOUT][:_SIDE]
        places.append(_Place(hole, trimmed(stream.texts[start:end]), left[::-1], right))
    return places


def _equal(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
