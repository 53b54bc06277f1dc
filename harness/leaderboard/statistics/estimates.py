"""Estimate means with intervals, clustered by task and by repository.

Attempts at one task are correlated, and so are tasks of one repository: each is a cluster, and the clusters are the
sample. The interval by task covers further tasks of these repositories, that by repository further repositories, too.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from harness.records.rewards import clustered_interval
from pytest_ssr.records.rate_interval import interval

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


@functools.lru_cache(maxsize=65536)
def pass_at(attempts: int, resolved: int, k: int) -> float:
    """Return 1 - C(attempts - resolved, k) / C(attempts, k): the probability that k attempts include a resolved one.

    Exact, with integers. Raises ValueError if there are fewer than k attempts, or more resolved ones than attempts.
    """
    if not 1 <= k <= attempts or not 0 <= resolved <= attempts:
        raise ValueError(f"pass@{k} of {resolved} resolved among {attempts} attempts is not defined")
    return 1 - math.comb(attempts - resolved, k) / math.comb(attempts, k)


def pass_at_k(resolved: Array, graded: Array, repos: Codes, k: int) -> Estimate | None:
    """Return the mean of pass@k over the tasks with at least k graded attempts; None if there are none.

    resolved and graded, shape (tasks,). `tasks` of the estimate is the number of these tasks.
    """
    is_eligible = graded >= k
    if not is_eligible.any():
        return None
    pairs = zip(graded[is_eligible].tolist(), resolved[is_eligible].tolist(), strict=True)
    values = np.array([pass_at(int(n), int(c), k) for n, c in pairs])
    # A task's value has at most n / k independent draws of k; every task has the same weight.
    weights = np.full(values.size, float(graded[is_eligible].mean()) / k)
    return proportion(values, weights, repos[is_eligible])


def wanted_ks(most_attempts: int) -> tuple[int, ...]:
    """Return the powers of two up to the largest number of graded attempts at a task."""
    return tuple(2**n for n in range(most_attempts.bit_length())) if most_attempts else ()


def diversity(kinds: Sequence[Hashable], repos: Sequence[str]) -> Estimate | None:
    """Return 1 - sum n_i (n_i - 1) / (n (n - 1)) over the kinds of bugs; None for fewer than two bugs.

    repos: the repository of each bug. The variance is that of the jackknife over bugs, and over repositories; the
    interval is Wilson's with the number of independent pairs that has this variance, at least one per two bugs or
    repositories.
    """
    if len(kinds) < 2:
        return None
    value = _simpson(Counter(kinds))
    low, high = _interval(value, _variance(kinds, [str(n) for n in range(len(kinds))]), len(kinds) / 2)
    sizes = np.array(list(Counter(repos).values()), dtype=np.float64)
    bounds: tuple[float | None, float | None] = (None, None)
    if sizes.size > 1:
        by_repo = _interval(value, _variance(kinds, repos), max(1.0, effective(sizes) / 2))
        bounds = min(low, by_repo[0]), max(high, by_repo[1])
    return Estimate(value, low, high, *bounds, tasks=len(kinds), repos=int(sizes.size))


def _simpson(counts: Counter[Hashable]) -> float:
    total = counts.total()
    return 1 - sum(n * (n - 1) for n in counts.values()) / (total * (total - 1))


def _variance(kinds: Sequence[Hashable], groups: Sequence[str]) -> float | None:
    """Return the jackknife variance, omitting one group at a time; None if fewer than two bugs would remain."""
    counts = Counter(kinds)
    total, pairs = counts.total(), sum(n * (n - 1) for n in counts.values())
    parts: dict[str, Counter[Hashable]] = {}
    for kind, group in zip(kinds, groups, strict=True):
        parts.setdefault(group, Counter())[kind] += 1
    leave_one_out = []
    for part in parts.values():
        rest = total - part.total()
        if rest < 2:
            return None
        removed_pairs = sum(
            counts[k] * (counts[k] - 1) - (counts[k] - n) * (counts[k] - n - 1) for k, n in part.items()
        )
        leave_one_out.append(1 - (pairs - removed_pairs) / (rest * (rest - 1)))
    values = np.array(leave_one_out)
    return float((values.size - 1) / values.size * ((values - values.mean()) ** 2).sum())


def _interval(value: float, variance: float | None, minimum: float) -> tuple[float, float]:
    pairs = minimum
    if variance and 0 < value < 1:
        pairs = max(minimum, value * (1 - value) / variance)
    return interval(value * pairs, pairs)
