"""Test the paper's rewards, and the effect of a small number of attempts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.rewards import (
    _student,
    best_solve_rate,
    clustered_interval,
    expected_injector_reward,
    injector_reward,
    solve_rate,
    solver_reward,
)
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.rate_interval import interval


def test_the_injector_is_rewarded_by_the_solve_rate() -> None:
    assert injector_reward(False, 0.5) == -1
    assert injector_reward(True, 0.0) == injector_reward(True, 1.0) == -0.8
    assert injector_reward(True, 1 / 8) == pytest.approx(0.775)
    assert injector_reward(True, 0.5) == pytest.approx(0.1)
    assert injector_reward(True, 0.5, alpha=0.2) == pytest.approx(0.4)
    assert injector_reward(True, None) is None, "an ungraded bug has no reward, and not a low one"
    assert injector_reward(False, None) == -1
    assert injector_reward(True, None, kind="validity") == 1
    assert injector_reward(False, kind="validity") == -1


def test_the_solver_is_rewarded_by_the_grade() -> None:
    assert [solver_reward(r) for r in (True, False, None)] == [1, -1, None]
    assert solve_rate([True, None, False, None]) == 0.5
    assert solve_rate([None]) is None


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_the_incentives_oppose(rate: float, alpha: float) -> None:
    reward = injector_reward(True, rate, alpha=alpha)
    assert reward is not None
    assert -1 < reward <= 1
    if 0 < rate < 1:
        easier = injector_reward(True, (1 + rate) / 2, alpha=alpha) if rate < 0.99 else -alpha
        assert easier is not None
        assert easier <= reward


@pytest.mark.parametrize(("attempts", "best"), [(4, 0.37), (8, 0.257), (16, 0.169), (32, 0.106), (64, 0.064)])
def test_few_attempts_push_towards_easier_bugs(attempts: int, best: float) -> None:
    rate = best_solve_rate(attempts)
    assert rate == pytest.approx(best, abs=6e-4)
    top = expected_injector_reward(rate, attempts)
    assert all(expected_injector_reward(p / 50, attempts) <= top + 1e-9 for p in range(51))


@given(st.integers(0, 40), st.integers(1, 40))
def test_an_interval_holds_the_rate_and_narrows(solved: int, graded: int) -> None:
    solved = min(solved, graded)
    low, high = interval(solved, graded)
    assert 0 <= low <= solved / graded <= high <= 1
    more = interval(solved * 4, graded * 4)
    assert more[1] - more[0] < high - low
    assert interval(0, 0) == (0, 1)


def test_wilsons_interval_is_the_published_one() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263.
    assert interval(81, 263) == (pytest.approx(0.2553, abs=1e-4), pytest.approx(0.3662, abs=1e-4))


def test_equal_attempts_at_a_bug_count_as_one() -> None:
    alike = clustered_interval([(8, 8)] * 5 + [(0, 8)] * 5)
    assert alike == pytest.approx(interval(5, 10))
    assert clustered_interval([(8, 8)] * 3) == interval(3, 3)
    assert clustered_interval([(5, 8)]) == pytest.approx(interval(5 / 8, 1))
    level, uneven = clustered_interval([(4, 8)] * 10), clustered_interval([(4, 8)] * 9 + [(5, 8)])
    assert level == pytest.approx(uneven, abs=0.02), "equal bugs are no weaker evidence"
    assert clustered_interval([(4, 8)] * 2) == pytest.approx(interval(1, 2)), (
        "two bugs are little evidence of their variance"
    )
    assert clustered_interval([]) == clustered_interval([(0, 0)]) == (0, 1)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (60, 2.0)]
)
def test_student_s_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert _student(freedom, 0.95) == pytest.approx(quantile, rel=5e-3)


@pytest.mark.parametrize("bugs", [3, 6, 10])
def test_an_interval_over_few_bugs_has_about_its_nominal_coverage(bugs: int) -> None:
    rng, held = Random(bugs), 0
    for _ in range(1000):
        drawn = [rng.betavariate(1, 2) for _ in range(bugs)]
        low, high = clustered_interval([(sum(rng.random() < p for _ in range(8)), 8) for p in drawn])
        held += low <= 1 / 3 <= high
    assert held >= 920


def test_attempts_are_independent_if_bugs_do_not_differ() -> None:
    rng = Random(0)
    bugs = [(sum(rng.random() < 0.3 for _ in range(8)), 8) for _ in range(200)]
    low, high = clustered_interval(bugs)
    apart = interval(sum(s for s, _ in bugs), 1600)
    assert high - low == pytest.approx(apart[1] - apart[0], rel=0.15)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda p: (min(p), max(p))), max_size=12))
def test_a_clustered_interval_holds_the_rate_and_is_never_narrower_than_an_independent_one(
    bugs: list[tuple[int, int]],
) -> None:
    low, high = clustered_interval(bugs)
    solved, graded = sum(s for s, _ in bugs), sum(g for _, g in bugs)
    assert 0 <= low <= high <= 1
    if graded:
        assert low - 1e-9 <= solved / graded <= high + 1e-9
        apart = interval(solved, graded)
        assert high - low >= apart[1] - apart[0] - 1e-9


def test_invalid_values_are_rejected() -> None:
    with pytest.raises(SettingsError, match=r"alpha must lie in \(0, 1\), not 1"):
        injector_reward(True, 0.5, alpha=1)
    with pytest.raises(SettingsError, match="'best' is not an injector reward"):
        injector_reward(True, 0.5, kind="best")
    with pytest.raises(SettingsError, match=r"a solve rate must lie in \[0, 1\], not 2"):
        injector_reward(True, 2.0)
    with pytest.raises(SettingsError, match="attempts must be at least 1"):
        expected_injector_reward(0.5, 0)
