"""What a language model says of variants of one text: the log-probability of each token that changed, and of the next.

Variants are usually candidate repairs of a function. The text is read once, and what variants have in common with it is
not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Variant:
    """A text, and the region in it that differs from the others."""

    text: str
    start: int
    """The first character of the region."""
    end: int
    """The first character after it."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities in nats, each given all of the text before the token."""

    changed: tuple[float, ...]
    """Of the tokens of the region."""
    after: tuple[float, ...]
    """Of the first tokens after it."""


class Reader(Protocol):
    """A language model that has read a text, and is asked about variants of it."""

    @property
    def tokens(self) -> int:
        """Number of tokens that were read until now: of the text, and of variants."""
        ...

    def glance(self, variants: Sequence[Variant]) -> list[float | None]:
        """Return how likely the first token is with which each variant leaves the text.

        It is the log-probability of that token, less that of the text's own token there: no variant is read for it.
        None for a variant that the model cannot tell about.
        """
        ...

    def read(self, variants: Sequence[Variant], *, after: int) -> list[Scores | None]:
        """Return the scores of variants. after: the number of tokens after each region.

        None for a variant that is longer than what the model reads. Raises ModelError if the model does not answer.
        """
        ...


class Scorer(Protocol):
    """A language model that gives log-probabilities."""

    @property
    def key(self) -> str:
        """A hash of everything that scores depend on."""
        ...

    def open(self, text: str) -> Reader:
        """Read a text, of which variants are scored then. Raises ModelError if the model does not answer."""
        ...
