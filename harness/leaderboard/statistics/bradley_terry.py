"""Fit abilities of solvers and difficulties of injectors on one scale, by a penalised Bradley-Terry model.

logit P(resolved) = ability of the solver - difficulty of the injector (Bradley and Terry, Biometrika 39, 1952; as an
item response model Rasch 1960), at the maximum of the likelihood with a normal prior on each: it is finite even if one
side wins everything. All contests are fitted at once, so that their order is irrelevant. Zero is the mean of the
reference pool; with a frozen pool, the abilities of its solvers are given and the others are relative to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from harness.leaderboard.statistics.estimates import Array, Codes, Estimate, effective, student

PRIOR_SD = 2.0
"""Standard deviation of the prior of abilities and difficulties, in logits."""


@dataclass(frozen=True, slots=True)
class Contests:
    """The solver, injector and bug of each contest, and its result; each array has the shape (contests,)."""

    solver: Codes
    injector: Codes
    bug: Codes
    repo: Codes
    resolved: Array
    graded: Array


@dataclass(frozen=True, slots=True)
class Fit:
    """Abilities and difficulties, by number; None if no chain of contests links the entrant to the pool."""

    solvers: list[Estimate | None]
    injectors: list[Estimate | None]
    frozen: frozenset[int]
    """The solvers whose ability was given."""


def fit(contests: Contests, pool: Sequence[int], solvers: int, injectors: int, frozen: Mapping[int, float]) -> Fit:
    """Fit abilities and difficulties in logits; the pool's mean is zero, or the frozen abilities are used as given.

    pool: numbers of the reference solvers. Intervals: the larger of the clustered (sandwich) variance, by bug and by
    repository (Liang and Zeger, Biometrika 73, 1986), and the posterior's (Laplace), with Student's t over clusters.
    """
    linked = _linked(contests, pool, solvers, injectors, frozen)
    used = np.flatnonzero(linked[contests.solver] & (contests.graded > 0))
    free = [n for n in range(solvers + injectors) if linked[n] and n not in frozen]
    if not used.size:
        return Fit([None] * solvers, [None] * injectors, frozenset())
    design = _design(contests, used, free, solvers)
    given = np.array([frozen.get(int(n), 0.0) for n in contests.solver[used]])
    center = float(np.mean(list(frozen.values()))) if frozen else 0.0
    resolved, graded = contests.resolved[used], contests.graded[used]
    optimum, hessian = _maximum(design, given, resolved, graded, center)
    contrast = np.eye(len(free))
    if not frozen:
        pool_indices = [free.index(n) for n in pool if linked[n]]
        contrast[:, pool_indices] -= 1 / len(pool_indices)
    covariance = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
    residuals = (resolved - graded * special.expit(given + design @ optimum))[:, None] * design
    half_widths = [
        _half_widths(contrast, covariance, residuals, groups[used], graded) for groups in (contests.bug, contests.repo)
    ]
    abilities = contrast @ optimum
    estimates: dict[int, Estimate | None] = dict.fromkeys(range(solvers + injectors))
    for index, n in enumerate(free):
        by_bug, by_repo = (None if w is None else float(w[index]) for w in half_widths)
        estimates[n] = _estimate(float(abilities[index]), by_bug, by_repo, contests, n, solvers)
    for n, ability in frozen.items():
        estimates[n] = Estimate(ability, None, None, None, None, *_met(contests, n, solvers)) if linked[n] else None
    both = [estimates[n] for n in range(solvers + injectors)]
    return Fit(both[:solvers], both[solvers:], frozenset(frozen))


def _linked(
    contests: Contests, pool: Sequence[int], solvers: int, injectors: int, frozen: Mapping[int, float]
) -> npt.NDArray[np.bool_]:
    """Return, for each solver and injector, whether contests link it to the pool: otherwise its ability is undefined.

    If the pool consists of unlinked parts and is not frozen, the part with the most pool members counts.
    """
    met = contests.graded > 0
    endpoints = (contests.solver[met], solvers + contests.injector[met])
    graph = coo_array((np.ones(int(met.sum())), endpoints), shape=(solvers + injectors,) * 2)
    _, parts = connected_components(graph, directed=False)
    with_contests = frozenset(contests.solver[met].tolist())
    anchors = [n for n in sorted(frozen or pool) if n in with_contests]
    if not anchors:
        return np.zeros(solvers + injectors, dtype=np.bool_)
    if frozen:
        return np.isin(parts, parts[anchors])
    return np.asarray(parts == int(np.bincount(parts[anchors]).argmax()))


def _design(contests: Contests, used: Codes, free: Sequence[int], solvers: int) -> Array:
    columns = {n: column for column, n in enumerate(free)}
    design = np.zeros((used.size, len(free)))
    for row, contest in enumerate(used):
        solver = columns.get(int(contests.solver[contest]))
        if solver is not None:
            design[row, solver] = 1.0
        design[row, columns[solvers + int(contests.injector[contest])]] = -1.0
    return design


def _maximum(design: Array, given: Array, resolved: Array, graded: Array, center: float) -> tuple[Array, Array]:
    """Return the maximum of the penalised likelihood, and the Hessian of its negative logarithm there."""
    prior = 1 / PRIOR_SD**2

    def negative_posterior(point: Array) -> float:
        logits = given + design @ point
        log_likelihood = resolved * special.log_expit(logits) + (graded - resolved) * special.log_expit(-logits)
        return float(-log_likelihood.sum() + prior / 2 * ((point - center) ** 2).sum())

    def gradient(point: Array) -> Array:
        excess = graded * special.expit(given + design @ point) - resolved
        return np.asarray(design.T @ excess + prior * (point - center))

    def hessian(point: Array) -> Array:
        probability = special.expit(given + design @ point)
        weights = graded * probability * (1 - probability)
        return np.asarray((design * weights[:, None]).T @ design + prior * np.eye(point.size))

    start = np.full(design.shape[1], center)
    result = optimize.minimize(
        negative_posterior, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-9}
    )
    return np.asarray(result.x), hessian(result.x)


def _half_widths(contrast: Array, covariance: Array, residuals: Array, groups: Codes, graded: Array) -> Array | None:
    """Return half of the width of each interval, shape (free,); None for one cluster."""
    _, cluster_of = np.unique(groups, return_inverse=True)
    clusters = int(cluster_of.max()) + 1
    if clusters < 2:
        return None
    scores = np.zeros((clusters, residuals.shape[1]))
    np.add.at(scores, cluster_of, residuals)
    clustered = covariance @ (clusters / (clusters - 1) * scores.T @ scores) @ covariance
    variances = [np.einsum("ij,jk,ik->i", contrast, v, contrast) for v in (clustered, covariance)]
    cluster_sizes = np.bincount(cluster_of, weights=graded).astype(np.float64)
    return np.asarray(student(effective(cluster_sizes) - 1) * np.sqrt(np.maximum(*variances)))


def _estimate(
    value: float, by_bug: float | None, by_repo: float | None, contests: Contests, n: int, solvers: int
) -> Estimate:
    if by_bug is not None and by_repo is not None:
        by_repo = max(by_bug, by_repo)
    low, high = (None, None) if by_bug is None else (value - by_bug, value + by_bug)
    repo_low, repo_high = (None, None) if by_repo is None else (value - by_repo, value + by_repo)
    return Estimate(value, low, high, repo_low, repo_high, *_met(contests, n, solvers))


def _met(contests: Contests, n: int, solvers: int) -> tuple[int, int]:
    """Return the numbers of bugs and of their repositories at which a solver or an injector has contests."""
    is_own = (contests.solver == n) if n < solvers else (contests.injector == n - solvers)
    is_own = is_own & (contests.graded > 0)
    return int(np.unique(contests.bug[is_own]).size), int(np.unique(contests.repo[is_own]).size)
