"""Fit the ranker of the search policy: gradient-boosted trees on lists of candidates (LightGBM).

The loss of a list is the negative logarithm of the probability that the softmax of the trees gives to the right
candidates together (ListNet with one relevance grade; Cao et al., ICML 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import lightgbm
import numpy as np
import numpy.typing as npt

from harness.solvers.search.features import NAMES
from harness.solvers.search.trees import Trees, read_trees
from harness.training.search.examples import Example

Floats = npt.NDArray[np.float64]

_MOST_TREES, _PATIENCE = 400, 25
_SETTINGS: dict[str, object] = {
    "learning_rate": 0.08,
    "num_leaves": 15,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
_LEAST_HESSIAN = 1e-3


class Lists:
    """The lists of candidates of covered examples, one after the other."""

    def __init__(self, examples: Sequence[Example]) -> None:
        """Join the lists. The candidates that were left out count as much as those that were drawn."""
        covered = [e for e in examples if e.is_covered]
        self.rows = np.concatenate([np.zeros((0, len(NAMES)), np.float32), *(e.rows for e in covered)])
        self.right = np.concatenate([np.zeros(0, bool), *(e.right for e in covered)])
        sizes = [len(e.right) for e in covered]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.owner = np.repeat(np.arange(len(sizes)), sizes)
        drawn = [(e.candidates - sum(e.right)) / max(1, len(e.right) - sum(e.right)) for e in covered]
        self.factor = np.where(self.right, 1.0, np.repeat(drawn, sizes))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def probabilities(self, logits: Floats) -> tuple[Floats, Floats]:
        """Return the probability of each candidate, and of all right ones of each list."""
        tops = np.maximum.reduceat(logits, self.starts[:-1])
        weights = np.exp(logits - tops[self.owner]) * self.factor
        shares = weights / np.add.reduceat(weights, self.starts[:-1])[self.owner]
        return shares, np.add.reduceat(np.where(self.right, shares, 0.0), self.starts[:-1])

    def gradient(self, logits: Floats) -> tuple[Floats, Floats]:
        """Return the first and second derivatives of the loss by each logit."""
        shares, right = self.probabilities(logits)
        wanted = np.where(self.right, shares / np.maximum(right, 1e-12)[self.owner], 0.0)
        return shares - wanted, np.maximum(shares * (1 - shares), _LEAST_HESSIAN)

    def reward_gradient(self, logits: Floats) -> tuple[Floats, Floats]:
        """Return the derivatives of the negative expected reward, which is 1 for a right candidate and 0 for others.

        It is the policy gradient over all actions of a list (Sutton et al., NeurIPS 1999), so no draw adds noise.
        """
        shares, right = self.probabilities(logits)
        gradient = shares * (right[self.owner] - self.right)
        return gradient, np.maximum(np.abs(gradient), _LEAST_HESSIAN)

    def loss(self, logits: Floats) -> float:
        """Return the mean loss of a list."""
        return float(-np.log(np.maximum(self.probabilities(logits)[1], 1e-12)).mean())


def fit(
    examples: Sequence[Example],
    validation: Sequence[Example],
    *,
    seed: int,
    rewarded: Sequence[Example] = (),
    progress: Callable[[int, float, float], None] | None = None,
) -> Trees:
    """Return the trees, in the number that has the lowest loss on validation examples.

    rewarded: examples whose right candidates are repairs that got a reward; their expected reward is maximized.
    progress: called with the number of trees and both losses. Raises ValueError without a covered example.
    """
    lists, held, graded = Lists(examples), Lists(validation), Lists(rewarded)
    if not len(lists) or not len(held):
        raise ValueError("no bug has a right candidate")
    rows, size = np.concatenate([lists.rows, graded.rows]), len(lists.rows)
    data = lightgbm.Dataset(rows, label=np.zeros(len(rows)), feature_name=list(NAMES), free_raw_data=False)
    booster = lightgbm.Booster({**_SETTINGS, "objective": "none", "seed": seed, "num_threads": 0}, data)
    logits, held_logits = np.zeros(len(rows)), np.zeros(len(held.rows))
    best, best_trees = held.loss(held_logits), 0

    def gradient(_scores: Floats, _data: lightgbm.Dataset) -> tuple[Floats, Floats]:
        parts = [lists.gradient(logits[:size])]
        if len(graded):
            parts.append(graded.reward_gradient(logits[size:]))
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    for number in range(1, _MOST_TREES + 1):
        booster.update(fobj=gradient)
        logits += booster.predict(rows, start_iteration=number - 1, num_iteration=1, raw_score=True)
        held_logits += booster.predict(held.rows, start_iteration=number - 1, num_iteration=1, raw_score=True)
        loss = held.loss(held_logits)
        if progress is not None:
            progress(number, lists.loss(logits[:size]), loss)
        if loss < best:
            best, best_trees = loss, number
        elif number - best_trees >= _PATIENCE:
            break
    return read_trees(booster.model_to_string(num_iteration=max(1, best_trees)), len(NAMES))
