"""Estimate means with intervals, clustered by task and by repository.

Attempts at one task are correlated, and so are tasks of one repository: each is a cluster, and the clusters are the
sample. The interval by task covers further tasks of these repositories, that by repository further repositories, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from harness.records.rewards import clustered_interval

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % intervals."""

    value: float
    low: float | None
    """By task; None if one task alone cannot show how tasks differ."""
    high: float | None
    repo_low: float | None
    """By repository; None if there is only one."""
    repo_high: float | None
    tasks: int
    repos: int


def proportion(shares: Array, weights: Array, repos: Codes, *, low: float = 0.0, high: float = 1.0) -> Estimate | None:
    """Return the weighted mean of values in [low, high], one for each task; None if there are none.

    weights, shape (tasks,): the largest number of independent attempts in a task's value. repos: each task's repository
    as a number. Intervals: `harness.records.rewards.clustered_interval` (Wilson's on an effective number of attempts,
    Korn and Graubard 1998), which is sensible for few tasks, and for tasks with equal values.
    """
    if not shares.size or not weights.sum():
        return None
    scaled = (shares - low) / (high - low)
    by_task = clustered_interval(list(zip((scaled * weights).tolist(), weights.tolist(), strict=True)))
    sums, counts = _by(repos, scaled * weights), _by(repos, weights)
    bounds: Sequence[float | None] = (None, None)
    if counts.size > 1:
        by_repo = clustered_interval(list(zip(sums.tolist(), counts.tolist(), strict=True)))
        bounds = [low + b * (high - low) for b in _around(by_repo, by_task)]
    mean = low + float((scaled * weights).sum() / weights.sum()) * (high - low)
    task_bounds = [low + b * (high - low) for b in by_task]
    return Estimate(
        mean, task_bounds[0], task_bounds[1], bounds[0], bounds[1], int((weights > 0).sum()), int(counts.size)
    )


def _around(wide: tuple[float, float], narrow: tuple[float, float]) -> tuple[float, float]:
    """Return the hull of two intervals: further repositories are no better known than further tasks of these."""
    return min(wide[0], narrow[0]), max(wide[1], narrow[1])


def amount(sums: Array, counts: Array, repos: Codes) -> Estimate | None:
    """Return the mean of a non-negative amount over all attempts; None if there are none.

    sums and counts, shape (tasks,): over a task's attempts. A ratio estimate with its linearised, clustered standard
    error (Cochran, Sampling Techniques, 1977, 6.3; Miller, arXiv 2411.00640, section 2.2) and Student's t.
    """
    is_counted = counts > 0
    sums, counts, repos = sums[is_counted], counts[is_counted], repos[is_counted]
    if not counts.size:
        return None
    mean = float(sums.sum() / counts.sum())
    half = _half(sums, counts)
    repo_half = _half(_by(repos, sums), _by(repos, counts))
    if half is not None and repo_half is not None:
        repo_half = max(half, repo_half)
    intervals = [None if h is None else (max(0.0, mean - h), mean + h) for h in (half, repo_half)]
    (low, high), (repo_low, repo_high) = (e or (None, None) for e in intervals)
    return Estimate(mean, low, high, repo_low, repo_high, counts.size, int(np.unique(repos).size))


def _half(sums: Array, counts: Array) -> float | None:
    """Return half of the width of the interval of a ratio; None for one cluster."""
    clusters = counts.size
    if clusters < 2:
        return None
    residuals = sums - sums.sum() / counts.sum() * counts
    error = float(np.sqrt(clusters / (clusters - 1) * (residuals**2).sum())) / float(counts.sum())
    return error * student(effective(counts) - 1)


def effective(counts: Array) -> float:
    """Return the effective number of clusters: that of equal ones with as much information (Kish 1965, 8.2)."""
    return float(counts.sum() ** 2 / (counts**2).sum())


def student(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t, for at least one degree of freedom."""
    return float(special.stdtrit(max(1.0, freedom), (1 + CONFIDENCE) / 2))


def _by(groups: Codes, values: Array) -> Array:
    """Return the sums of values by group, in the order of the groups' numbers, without empty groups."""
    _, group_of = np.unique(groups, return_inverse=True)
    return np.bincount(group_of, weights=values).astype(np.float64)
