"""Find texts that nearly repeat earlier ones: sets of tokens with a high Jaccard similarity.

The search is exact. In any fixed order of tokens, two sets whose similarity is at least `threshold` share one of their
first few tokens, so only sets with such a token are compared. Long tokens come first because they are rare.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

_TOKEN = re.compile(r"\w+|[^\w\s]")
_CHANGED_LINE = re.compile(rb"^[+-](?!\+\+ |-- )(.*)$", re.MULTILINE)
_ROUNDING = 1e-9


def tokens_of_text(text: str) -> frozenset[str]:
    """Return the words and punctuation marks of a text, in lower case."""
    return frozenset(_TOKEN.findall(text.lower()))


def tokens_of_diff(diff: bytes) -> frozenset[str]:
    """Return the tokens of the changed lines of a diff, without paths: a bug and its repair have the same."""
    lines = b"\n".join(_CHANGED_LINE.findall(diff)).decode("utf-8", "replace")
    return frozenset(_TOKEN.findall(lines))


class Compared(StrEnum):
    """What two bugs or tasks have in common."""

    DIFF = "diff"
    STATEMENT = "statement"


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A bug or a task that nearly repeats another one."""

    id: str
    original: str
    """The id of the other."""
    benchmark: str
    """The name of the file or folder with the other; empty if it is in the export."""
    compared: Compared
    similarity: float


class Match(NamedTuple):
    """An earlier set that is similar to another one."""

    name: str
    similarity: float


class TokenSets:
    """Named sets of tokens, which are searched for the one most similar to another set."""

    def __init__(self, threshold: float) -> None:
        """threshold: the least Jaccard similarity that counts, in (0, 1]."""
        self._threshold = threshold
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._sets: list[array[int]] = []
        self._by_token: defaultdict[int, array[int]] = defaultdict(partial(array, "I"))
        """The positions of the sets that have a token among their first ones."""

    def add(self, name: str, tokens: Collection[str]) -> None:
        """Add a set under a name; an empty one is never found."""
        position = len(self._names)
        self._names.append(name)
        self._sets.append(array("I", sorted(self._number(token) for token in tokens)))
        for token in self._first(tokens):
            self._by_token[self._number(token)].append(position)

    def most_similar(self, tokens: Collection[str]) -> Match | None:
        """Return the most similar set, the earliest one of several; None if none is similar enough."""
        numbers = {self._numbers[token] for token in tokens if token in self._numbers}
        best: Match | None = None
        for position in sorted(set(self._candidates(tokens))):
            other = self._sets[position]
            if min(len(tokens), len(other)) < self._threshold * max(len(tokens), len(other)) - _ROUNDING:
                continue
            shared = len(numbers.intersection(other))
            similarity = shared / (len(tokens) + len(other) - shared)
            if similarity >= self._threshold - _ROUNDING and (best is None or similarity > best.similarity):
                best = Match(self._names[position], similarity)
        return best

    def _candidates(self, tokens: Collection[str]) -> Iterator[int]:
        for token in self._first(tokens):
            yield from self._by_token.get(self._numbers.get(token, -1), ())

    def _first(self, tokens: Collection[str]) -> list[str]:
        """Return the tokens of which a similar set must share one."""
        count = len(tokens) - math.ceil(self._threshold * len(tokens) - _ROUNDING) + 1
        return sorted(tokens, key=lambda token: (-len(token), token))[:count] if tokens else []

    def _number(self, token: str) -> int:
        return self._numbers.setdefault(token, len(self._numbers))
