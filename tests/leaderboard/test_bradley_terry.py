"""Abilities are recovered, finite, and independent of the order of contests."""

from __future__ import annotations

import time

import numpy as np
import pytest

from harness.leaderboard.statistics.bradley_terry import Contests, fit


def contests(
    abilities: list[float], difficulties: list[float], *, bugs: int, attempts: int, seed: int, spread: float = 0.0
) -> Contests:
    random, rows = np.random.default_rng(seed), []
    for injector, difficulty in enumerate(difficulties):
        for bug in range(bugs):
            own = random.normal(0, spread) if spread else 0.0
            for solver, ability in enumerate(abilities):
                probability = 1 / (1 + np.exp(-(ability - difficulty - own)))
                number = injector * bugs + bug
                rows.append((solver, injector, number, number % 6, random.binomial(attempts, probability), attempts))
    columns = np.array(rows).T
    return Contests(*(c.astype(np.int64) for c in columns[:4]), *(c.astype(np.float64) for c in columns[4:]))


def value(estimate: object) -> float:
    return estimate.value  # type: ignore[attr-defined,no-any-return]


def test_abilities_are_recovered_on_the_pool_s_scale() -> None:
    abilities, difficulties = [1.0, 0.0, -1.0, 2.0], [0.5, -0.5, 1.5]
    fitted = fit(contests(abilities, difficulties, bugs=60, attempts=8, seed=1), [0, 1, 2], 4, 3, {})
    assert [value(s) for s in fitted.solvers] == pytest.approx(abilities, abs=0.25)
    assert [value(i) for i in fitted.injectors] == pytest.approx(difficulties, abs=0.25)
    assert sum(value(s) for s in fitted.solvers[:3]) == pytest.approx(0, abs=1e-6)


def test_the_order_of_contests_is_irrelevant() -> None:
    played = contests([1.0, 0.0, -1.0], [0.0, 1.0], bugs=10, attempts=4, seed=2)
    mixed = np.random.default_rng(0).permutation(played.solver.size)
    names = ("solver", "injector", "bug", "repo", "resolved", "graded")
    other = Contests(*(getattr(played, n)[mixed] for n in names))
    one, two = (fit(c, [0, 1, 2], 3, 2, {}) for c in (played, other))
    assert [value(s) for s in one.solvers] == pytest.approx([value(s) for s in two.solvers], abs=1e-6)


@pytest.mark.parametrize("resolved", [0, 1])
def test_abilities_are_finite_when_one_side_wins_everything(resolved: int) -> None:
    count = 40
    one = np.zeros(count, dtype=np.int64)
    played = Contests(one, one, np.arange(count), one, np.full(count, 8.0 * resolved), np.full(count, 8.0))
    begin = time.monotonic()
    fitted = fit(played, [0], 1, 1, {})
    assert time.monotonic() - begin < 5
    (solver,), (injector,) = fitted.solvers, fitted.injectors
    assert solver is not None
    assert injector is not None
    assert solver.value == pytest.approx(0)
    assert (injector.value < -3) if resolved else (injector.value > 3)
    assert abs(injector.value) < 20
    assert injector.low is not None
    assert injector.high is not None
    assert injector.high - injector.low > 2, "how much stronger cannot be known"


def test_a_frozen_pool_keeps_its_abilities() -> None:
    played = contests([1.0, 0.0, -1.0], [0.0, 2.0], bugs=50, attempts=8, seed=3)
    fitted = fit(played, [0, 1], 3, 2, {0: 3.0, 1: 2.0})
    assert [value(s) for s in fitted.solvers[:2]] == [3.0, 2.0]
    assert value(fitted.solvers[2]) == pytest.approx(1.0, abs=0.3)
    assert [value(i) for i in fitted.injectors] == pytest.approx([2.0, 4.0], abs=0.3)
    assert fitted.frozen == {0, 1}


def test_an_entrant_not_linked_to_the_pool_has_no_ability() -> None:
    played = Contests(
        np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([0, 0, 0]), np.ones(3), np.full(3, 2.0)
    )
    fitted = fit(played, [0], 3, 3, {})
    assert fitted.solvers[0] is not None
    assert fitted.injectors[0] is not None
    assert fitted.solvers[1:] == [None, None]
    assert fitted.injectors[1:] == [None, None]
    nothing = np.array([], dtype=np.int64)
    empty = Contests(nothing, nothing, nothing, nothing, np.array([]), np.array([]))
    assert fit(empty, [], 1, 1, {}).solvers == [None]


def test_intervals_of_difficulty_have_their_coverage_though_bugs_differ() -> None:
    covered, total = 0, 120
    for seed in range(total):
        played = contests([1.0, 0.0, -1.0], [0.0, 1.0], bugs=30, attempts=4, seed=seed, spread=1.0)
        fitted = fit(played, [0, 1, 2], 3, 2, {})
        first, second = fitted.injectors
        assert first is not None
        assert second is not None
        assert first.low is not None
        assert first.high is not None
        # Differences between bugs shrink the marginal difficulty towards zero; at the pool's mean there is no bias.
        covered += first.low <= 0.0 <= first.high
    assert covered / total >= 0.91
