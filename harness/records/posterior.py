"""Compute the posterior of a task's solve rate: Beta(1 + solved, 1 + failed), which a uniform prior gives.

See Gelman et al., Bayesian Data Analysis, third edition, section 2.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

CONFIDENCE = 0.9
_STEPS = 50
"""Bisections of a quantile, which halve its error each."""


class Posterior(NamedTuple):
    """The posterior of a solve rate."""

    mean: float
    low: float
    """The lower end of its central 90 % interval."""
    high: float


def posterior(solved: int, graded: int) -> Posterior:
    """Return the posterior of the solve rate of a task that `solved` of `graded` attempts have solved."""
    a, b = solved + 1, graded - solved + 1
    tail = (1 - CONFIDENCE) / 2
    return Posterior(a / (a + b), _quantile(tail, a, b), _quantile(1 - tail, a, b))


def _quantile(probability: float, a: int, b: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _cumulative(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _cumulative(x: float, a: int, b: int) -> float:
    """Return the probability that Beta(a, b) is at most x, in (0, 1): a tail of the binomial distribution."""
    n = a + b - 1
    log_x, log_y = math.log(x), math.log1p(-x)
    constant = math.lgamma(n + 1)
    return math.fsum(
        math.exp(constant - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_x + (n - k) * log_y)
        for k in range(a, n + 1)
    )
