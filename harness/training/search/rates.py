"""Measure a ranker: at which place in the list the first right candidate is, and what share of bugs that repairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from harness.training.search.examples import Example, Shares

BUDGETS = (1, 5, 20, 100)
_DRAWS, _RESAMPLES = 20, 2000

Logits = Callable[[Example], Shares]


@dataclass(frozen=True, slots=True)
class Rate:
    """The share of bugs whose right candidate is among the first of the list."""

    budget: int
    """The number of first candidates."""
    rate: float
    by_bug: tuple[float, float]
    """95 % interval if bugs are resampled."""
    by_project: tuple[float, float] | None
    """95 % interval if projects are resampled, with their bugs; None for fewer than two projects."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rates of the weights of patterns, and of a policy, on the same bugs."""

    bugs: int
    covered: int
    """The number of bugs with a right candidate."""
    patterns: tuple[Rate, ...]
    policy: tuple[Rate, ...]

    def to_json(self) -> dict[str, object]:
        """Return the comparison as JSON data."""
        return asdict(self)


def compare(examples: Sequence[Example], policy: Logits, *, seed: int) -> Comparison:
    """Return the rates of candidates drawn by the weights of their patterns, and by a policy's logits."""
    by_weight, by_policy = (_hits(examples, logits, seed) for logits in (pattern_logits, policy))
    projects = [e.project for e in examples]
    return Comparison(
        len(examples),
        sum(e.is_covered for e in examples),
        tuple(rate_of(budget, by_weight[budget], projects, seed) for budget in BUDGETS),
        tuple(rate_of(budget, by_policy[budget], projects, seed) for budget in BUDGETS),
    )


def pattern_logits(example: Example) -> Shares:
    """Return the logarithms of the weights of patterns."""
    return np.log(np.maximum(example.shares, 1e-12))


def _hits(examples: Sequence[Example], logits: Logits, seed: int) -> Mapping[int, Shares]:
    """Return for each budget and bug the probability that a right candidate is among the first, by repeated draws."""
    rng = np.random.default_rng(seed)
    hits = {budget: np.zeros(len(examples)) for budget in BUDGETS}
    for index, example in enumerate(examples):
        if not example.is_covered:
            continue
        values, right = logits(example), example.right
        # A wrong candidate that is kept stands for several, each of which is drawn by itself.
        factor = (example.candidates - right.sum()) / max(1, (~right).sum())
        for _ in range(_DRAWS):
            # Gumbel noise draws in proportion to the weights, as the solver does.
            noisy = values + rng.gumbel(size=len(values))
            first = noisy[right].max()
            ahead = -np.expm1(-np.exp(np.minimum(values[~right] - first, 50.0)))
            rank = 1 + (noisy[~right] > first).sum() + rng.poisson((factor - 1) * ahead.sum())
            for budget in BUDGETS:
                hits[budget][index] += (rank <= budget) / _DRAWS
    return hits


def rate_of(budget: int, hits: Shares, projects: Sequence[str], seed: int) -> Rate:
    """Return the mean of bugs' shares with its intervals. projects: of each bug."""
    rng = np.random.default_rng(seed)
    if not len(hits):
        return Rate(budget, 0.0, (0.0, 1.0), None)
    by_bug = hits[rng.integers(0, len(hits), (_RESAMPLES, len(hits)))].mean(axis=1)
    names = sorted(set(projects))
    owner = np.array([names.index(p) for p in projects])
    sums, counts = np.bincount(owner, hits), np.bincount(owner)
    drawn = rng.integers(0, len(names), (_RESAMPLES, len(names)))
    by_project = _interval(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)) if len(names) > 1 else None
    return Rate(budget, float(hits.mean()), _interval(by_bug), by_project)


def _interval(draws: Shares) -> tuple[float, float]:
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)
