"""What a language model says of variants of one text: the log-probability of each token that changed, and of the next.

Variants are usually candidate repairs of a function. Implementations share the work on what variants have in common.
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


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of variants, and what they cost."""

    scores: tuple[Scores | None, ...]
    """Of each variant; None if it is longer than what the model reads."""
    tokens: int
    """Number of tokens that were read."""


class Scorer(Protocol):
    """A language model that gives log-probabilities."""

    @property
    def key(self) -> str:
        """A hash of everything that scores depend on."""
        ...

    def score(self, text: str, variants: Sequence[Variant], *, after: int) -> Scored:
        """Return the scores of variants of a text. after: the number of tokens after each region.

        Raises ModelError if the model does not answer.
        """
        ...
