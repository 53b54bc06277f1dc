"""Compare two solvers at the same tasks: the difference, and the probability that it is real.

The Bayesian bootstrap (Rubin, Annals of Statistics 9, 1981) over the differences of tasks, or of repositories, paired
(Miller, arXiv 2411.00640, section 4). One imaginary task, half won and half lost, is added to the real ones: with one
attempt at each task the probability is that of a binomial with Jeffreys' prior, wins against losses, and one task or a
clean sweep of a few is never certain. Over repositories, the imaginary one differs as much as the real ones do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.leaderboard.statistics.estimates import CONFIDENCE, Array, Codes

DRAWS = 4000
_MAX_WEIGHTS = 2_000_000
"""Weights drawn at once, which bounds the memory."""
_PRIOR = 0.5


@dataclass(frozen=True, slots=True)
class Difference:
    """The first solver's mean resolve rate over common tasks less that of the second."""

    tasks: int
    repos: int
    wins: int
    """Number of tasks at which the first solver is better."""
    losses: int
    value: float
    low: float
    """Lower end of the 95 % interval, by task."""
    high: float
    probability: float
    """Probability that the first solver is better, over further tasks of these repositories."""
    repo_low: float
    repo_high: float
    repo_probability: float
    """The same probability, over further repositories."""


def compare(rates: Array, repos: Codes, pairs: Sequence[tuple[int, int]], *, seed: int) -> list[Difference | None]:
    """Return the difference of each pair of solvers; None for a pair without a common task.

    rates, shape (tasks, solvers): resolved over graded attempts, nan if none. repos: of each task, shape (tasks,).
    """
    if not pairs:
        return []
    first, second = ([p[n] for p in pairs] for n in (0, 1))
    differences = rates[:, first] - rates[:, second]
    is_common = ~np.isnan(differences)
    differences = np.where(is_common, differences, 0.0)
    _, repo_of = np.unique(repos, return_inverse=True)
    repo_count = int(repo_of.max(initial=-1)) + 1
    by_repo, in_repo = np.zeros((repo_count, len(pairs))), np.zeros((repo_count, len(pairs)))
    np.add.at(by_repo, repo_of, differences)
    np.add.at(in_repo, repo_of, is_common)
    repos_of = (in_repo > 0).sum(axis=0)
    tasks = is_common.sum(axis=0)
    ones = np.ones(len(pairs))
    by_task = _posterior(differences, is_common.astype(np.float64), ones, ones, seed)
    size = np.where(repos_of > 0, tasks / np.maximum(repos_of, 1), 1.0)
    typical = np.sqrt((by_repo**2 / np.maximum(in_repo, 1)).sum(axis=0) / np.maximum(tasks, 1))
    over = _posterior(by_repo, in_repo, size, typical, seed + 1)
    results: list[Difference | None] = []
    for n in range(len(pairs)):
        if not tasks[n]:
            results.append(None)
            continue
        own_differences, narrow = differences[:, n], _summary(by_task[:, n])
        results.append(
            Difference(
                int(tasks[n]),
                int(repos_of[n]),
                int((own_differences > 0).sum()),
                int((own_differences < 0).sum()),
                float(own_differences.sum() / tasks[n]),
                *narrow,
                *_no_surer(_summary(over[:, n]), narrow),
            )
        )
    return results


def _no_surer(wide: tuple[float, float, float], narrow: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the summary over repositories, at most as certain as that over further tasks of these repositories."""
    probability = min(wide[2], narrow[2], key=lambda p: abs(p - 0.5))
    return min(wide[0], narrow[0]), max(wide[1], narrow[1]), probability


def _posterior(sums: Array, counts: Array, size: Array, spread: Array, seed: int) -> Array:
    """Return draws of the mean difference, shape (2 x DRAWS, pairs).

    sums and counts, shape (clusters, pairs). size and spread, shape (pairs,): the size of the imaginary cluster, and
    the distance of its halves from zero. Each draw is used with both signs of the halves, so that ties stay ties.
    """
    random = np.random.default_rng(seed)
    clusters, pairs = sums.shape
    draws = np.empty((2, DRAWS, pairs))
    block = max(1, _MAX_WEIGHTS // max(1, clusters))
    for begin in range(0, DRAWS, block):
        end = min(DRAWS, begin + block)
        weights = random.standard_exponential((end - begin, clusters))
        halves = random.standard_gamma(_PRIOR, (end - begin, 2))
        top, bottom = weights @ sums, weights @ counts + halves.sum(axis=1, keepdims=True) * size
        shift = (halves[:, :1] - halves[:, 1:]) * size * spread
        draws[0, begin:end], draws[1, begin:end] = (top + shift) / bottom, (top - shift) / bottom
    return draws.reshape(2 * DRAWS, pairs)


def _summary(draws: Array) -> tuple[float, float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high), float((draws > 0).mean() + (draws == 0).mean() / 2)


def agreement(rates: Array) -> tuple[Array, Codes]:
    """Return the agreement of solvers beyond chance and their numbers of common tasks, each (solvers, solvers).

    Cohen's kappa (Educational and Psychological Measurement 20, 1960) of one attempt of each; with several attempts at
    a task, its expectation. nan if either resolves all or none of the common tasks, where all agreement is by chance.
    """
    has_grade = (~np.isnan(rates)).astype(np.float64)
    shares = np.where(has_grade > 0, rates, 0.0)
    common = has_grade.T @ has_grade
    with np.errstate(invalid="ignore", divide="ignore"):
        both_resolved = shares.T @ shares / common
        first_rate = shares.T @ has_grade / common
        second_rate = first_rate.T
        observed = 1 - first_rate - second_rate + 2 * both_resolved
        by_chance = first_rate * second_rate + (1 - first_rate) * (1 - second_rate)
        kappa = np.where(by_chance < 1 - 1e-12, (observed - by_chance) / (1 - by_chance), np.nan)
    for rate_of in (first_rate, second_rate):
        kappa = np.where((rate_of <= 0) | (rate_of >= 1), np.nan, kappa)
    return kappa, common.astype(np.int64)
