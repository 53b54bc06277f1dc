"""Estimate the diversity of an injector's bugs, without bias: the probability that two differ.

This is Simpson's index (Nature 163, 1949).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from harness.leaderboard.statistics.estimates import Estimate, effective
from harness.records.rewards import interval


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
