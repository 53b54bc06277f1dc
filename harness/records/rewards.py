"""Compute rewards from solve rates by the paper's formulas (arXiv 2512.18552, section 2.4).

An infrastructure failure has no reward: it is None here, never a low number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from pytest_ssr.errors import SettingsError
from pytest_ssr.records.rate_interval import interval

ALPHA = 0.8
KINDS = ("solve-rate", "validity")
_GRID_STEPS = 1000


def solve_rate(outcomes: Sequence[bool | None]) -> float | None:
    """Return resolved attempts divided by graded attempts; None if no attempt has a grade."""
    graded = [o for o in outcomes if o is not None]
    return sum(graded) / len(graded) if graded else None


def injector_reward(
    valid: bool, rate: float | None = None, *, alpha: float = ALPHA, kind: str = "solve-rate"
) -> float | None:
    """Return the injector's reward.

    An invalid bug gets -1. A valid one gets, by kind `solve-rate`, -alpha if the solve rate is 0 or 1 (not a useful
    task), otherwise 1 - (1 + alpha) * rate, and None without a rate; by kind `validity`, 1 (in the paper 0.3 points
    worse).
    Raises SettingsError for an alpha outside (0, 1) or an unknown kind.
    """
    if not 0 < alpha < 1:
        raise SettingsError(f"alpha must lie in (0, 1), not {alpha}")
    if kind not in KINDS:
        raise SettingsError(f"{kind!r} is not an injector reward; choose from {', '.join(KINDS)}")
    if not valid:
        return -1.0
    if kind == "validity":
        return 1.0
    if rate is None:
        return None
    if not 0 <= rate <= 1:
        raise SettingsError(f"a solve rate must lie in [0, 1], not {rate}")
    return -alpha if rate in (0.0, 1.0) else 1 - (1 + alpha) * rate


def reward_at_rate(reward: float | None, recorded: float | None, rate: float | None) -> float | None:
    """Return the reward of an injector for a valid bug at another solve rate than the recorded one.

    The recorded reward and rate show the kind of reward and its alpha: a reward by solve rate is always less than 1.
    """
    if reward is None or rate == recorded or reward == 1.0:
        return reward
    if recorded is None or rate is None:
        return None
    alpha = -reward if recorded in (0.0, 1.0) else (1 - reward) / recorded - 1
    return -alpha if rate in (0.0, 1.0) else 1 - (1 + alpha) * rate


def solver_reward(resolved: bool | None) -> float | None:
    """Return +1 for a resolved attempt, -1 for an unresolved one, and None without a grade."""
    if resolved is None:
        return None
    return 1.0 if resolved else -1.0


def expected_injector_reward(
    probability: float, attempts: int, *, alpha: float = ALPHA, kind: str = "solve-rate"
) -> float:
    """Return the expected reward of a valid bug that each of `attempts` attempts solves with this probability.

    The value is exact: it uses the binomial distribution of the number of solved attempts.
    """
    if attempts < 1 or not 0 <= probability <= 1:
        raise SettingsError(
            f"attempts must be at least 1 and the probability in [0, 1], not {attempts} and {probability}"
        )
    total = 0.0
    for solved in range(attempts + 1):
        weight = math.comb(attempts, solved) * probability**solved * (1 - probability) ** (attempts - solved)
        reward = injector_reward(True, solved / attempts, alpha=alpha, kind=kind)
        assert reward is not None
        total += weight * reward
    return total


def best_solve_rate(attempts: int, *, alpha: float = ALPHA) -> float:
    """Return the solve probability with the highest expected reward, to which an injector is driven.

    The fewer the attempts, the easier the most rewarding bugs: 0.257 for 8 attempts, 0.37 for 4. A grid search is
    followed by a golden-section search, to within 1e-6.
    """
    grid = [n / _GRID_STEPS for n in range(_GRID_STEPS + 1)]
    top = max(grid, key=lambda p: expected_injector_reward(p, attempts, alpha=alpha))
    low, high = max(0.0, top - 1 / _GRID_STEPS), min(1.0, top + 1 / _GRID_STEPS)
    section = (math.sqrt(5) - 1) / 2
    while high - low > 1e-6:
        left, right = high - section * (high - low), low + section * (high - low)
        if expected_injector_reward(left, attempts, alpha=alpha) < expected_injector_reward(
            right, attempts, alpha=alpha
        ):
            low = left
        else:
            high = right
    return (low + high) / 2


def clustered_interval(bugs: Sequence[tuple[float, float]], *, confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval of the rate over bugs, each (solved, graded), whose attempts are correlated within a bug.

    It is the Wilson interval for the number of independent attempts that would give the same variance, reduced when
    that variance is estimated from few bugs (Korn and Graubard, Survey Methodology 24, 1998), but at least one per
    bug. Bugs with unequal numbers of attempts count as (sum n)^2 / sum n^2 bugs (Kish, Survey Sampling, 1965, 8.2).
    """
    clusters = [(solved, graded) for solved, graded in bugs if graded]
    solved, attempts = sum(s for s, _ in clusters), sum(g for _, g in clusters)
    if not clusters:
        return 0.0, 1.0
    rate, count = solved / attempts, len(clusters)
    spread = sum((s - rate * g) ** 2 for s, g in clusters)
    equal_clusters = min(count, attempts**2 / sum(g * g for _, g in clusters))
    independent = equal_clusters
    if count > 1 and 0 < rate < 1:
        variance = count / (count - 1) * spread / attempts**2
        effective = min(attempts, rate * (1 - rate) / variance) if variance else attempts
        freedom = max(1, int(equal_clusters + 1e-9) - 1)
        correction = _student(freedom, confidence) / _student(max(freedom, int(attempts) - 1), confidence)
        independent = max(equal_clusters, effective / correction**2)
    return interval(rate * independent, independent, confidence=confidence)


def _student(freedom: int, confidence: float) -> float:
    """Return the two-sided quantile of Student's t: exact for 1 and 2 degrees of freedom, otherwise within 0.5 %.

    The expansion is Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    p = (1 + confidence) / 2
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    z = NormalDist().inv_cdf(p)
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** n for n, term in enumerate(terms, 1))
