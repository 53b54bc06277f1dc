"""Open a language model by its name; it is loaded when it is first asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.local_models.scoring import Scored, Scorer, Variant
from harness.local_models.weights import Weights, find_weights


@dataclass(frozen=True, slots=True)
class LocalScorer:
    """A model on this machine. It holds no weights, so that it can be sent to other processes."""

    weights: Weights

    @property
    def key(self) -> str:
        """A hash of the model."""
        return self.weights.key

    def score(self, text: str, variants: Sequence[Variant], *, after: int) -> Scored:
        """Return the scores of variants; see `Scorer`."""
        from harness.local_models.torch_model import open_model

        return open_model(self.weights).score(text, variants, after=after)


def open_scorer(name: str) -> Scorer:
    """Return the model that a name stands for; see `find_weights` for names and errors."""
    return LocalScorer(find_weights(name))
