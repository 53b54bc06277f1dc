"""Estimate pass@k without bias (Chen et al., arXiv 2107.03374, section 2.1)."""

from __future__ import annotations

import functools
import math

import numpy as np

from harness.leaderboard.statistics.estimates import Array, Codes, Estimate, proportion


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
