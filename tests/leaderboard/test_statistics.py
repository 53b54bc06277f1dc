"""The statistics against known answers: enumeration, published figures, and seeded simulation."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.leaderboard.statistics.estimates import (
    amount,
    diversity,
    effective,
    pass_at,
    pass_at_k,
    proportion,
    wanted_ks,
)
from harness.leaderboard.statistics.paired_tests import agreement, compare
from harness.records.rewards import clustered_interval
from pytest_ssr.records.rate_interval import interval


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def codes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_choices_with_a_resolved_attempt(drawn: tuple[int, int, int]) -> None:
    attempts, resolved, k = drawn
    outcomes = [True] * resolved + [False] * (attempts - resolved)
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at(attempts, resolved, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_pass_at_k_is_unbiased_unlike_the_plug_in_estimator() -> None:
    probability, attempts, k = 0.3, 8, 4
    weights = [comb(attempts, c) * probability**c * (1 - probability) ** (attempts - c) for c in range(attempts + 1)]
    mean = sum(w * pass_at(attempts, c, k) for c, w in enumerate(weights))
    plug_in = sum(w * (1 - (1 - c / attempts) ** k) for c, w in enumerate(weights))
    assert mean == pytest.approx(1 - (1 - probability) ** k, abs=1e-12)
    assert plug_in < mean - 0.02


def test_pass_at_k_covers_tasks_with_enough_attempts() -> None:
    estimate = pass_at_k(floats(1, 2, 1), floats(4, 4, 1), codes(0, 1, 2), 2)
    assert estimate is not None
    assert estimate.value == pytest.approx((pass_at(4, 1, 2) + pass_at(4, 2, 2)) / 2)
    assert (estimate.tasks, estimate.repos) == (2, 2)
    assert pass_at_k(floats(1), floats(1), codes(0), 2) is None
    assert (wanted_ks(0), wanted_ks(1), wanted_ks(9)) == ((), (1,), (1, 2, 4, 8))
    with pytest.raises(ValueError, match="pass@3 of 1 resolved among 2 attempts"):
        pass_at(2, 1, 3)


def test_clusters_of_unequal_size_count_as_fewer() -> None:
    assert clustered_interval([(4, 8)] * 2) == pytest.approx(interval(1, 2))
    uneven = clustered_interval([(30, 60), (2, 4)])
    assert uneven[1] - uneven[0] > interval(1, 2)[1] - interval(1, 2)[0], "two of which one is nearly all"
    assert effective(floats(5, 5, 5)) == pytest.approx(3)
    assert effective(floats(60, 4)) == pytest.approx(64**2 / (3600 + 16))


@pytest.mark.parametrize(
    ("shares", "low", "high"),
    [((1.0,), 0.2, 1.0), ((0.0,), 0.0, 0.8), ((1.0,) * 10, 0.7, 1.0), ((0.0, 1.0), 0.05, 0.95)],
)
def test_a_rate_of_few_tasks_is_never_certain(shares: tuple[float, ...], low: float, high: float) -> None:
    estimate = proportion(floats(*shares), np.full(len(shares), 8.0), np.zeros(len(shares), dtype=np.int64))
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low == pytest.approx(low, abs=0.06)
    assert estimate.high == pytest.approx(high, abs=0.06)
    assert (estimate.repo_low, estimate.repo_high) == (None, None), "of one repository nothing is known"
    assert proportion(floats(), floats(), codes()) is None


@pytest.mark.parametrize(("sizes", "least"), [((10,) * 12, 0.92), ((60, 12, 12, 12, 6, 6, 6, 6), 0.90)])
def test_intervals_by_repository_have_their_coverage(sizes: tuple[int, ...], least: float) -> None:
    random, covered, covered_by_task = np.random.default_rng(1), 0, 0
    repos = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(600):
        chances = random.beta(2, 2, len(sizes))[repos]
        shares = (random.random(repos.size) < chances).astype(np.float64)
        estimate = proportion(shares, np.ones(repos.size), repos)
        assert estimate is not None
        assert estimate.repo_low is not None
        assert estimate.repo_high is not None
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.repo_low <= 0.5 <= estimate.repo_high
        covered_by_task += estimate.low <= 0.5 <= estimate.high
    assert covered / 600 >= least
    assert covered_by_task / 600 < 0.85, "tasks of one repository are alike: taking them one by one is too sure"


def test_the_clustered_error_of_an_amount_matches_the_textbook() -> None:
    sums, counts = floats(2, 4, 9, 1), floats(2, 2, 3, 1)
    estimate = amount(sums, counts, codes(0, 0, 1, 1))
    assert estimate is not None
    residuals = sums - 2.0 * counts
    error = np.sqrt(4 / 3 * (residuals**2).sum()) / 8
    half = error * stats.t.ppf(0.975, effective(counts) - 1)
    assert (estimate.value, estimate.high) == (2.0, pytest.approx(2 + half))
    assert estimate.low == pytest.approx(max(0.0, 2 - half))
    assert estimate.repo_high is not None
    assert estimate.high is not None
    assert estimate.repo_high >= estimate.high
    alone = amount(floats(5, 0), floats(1, 0), codes(0, 1))
    assert alone is not None
    assert (alone.value, alone.low, alone.tasks) == (5.0, None, 1)
    assert amount(floats(0), floats(0), codes(0)) is None


def test_eight_attempts_at_a_task_are_not_eight_tasks() -> None:
    random, spread = np.random.default_rng(2), []
    chances = random.beta(0.5, 0.5, 300)
    estimate = None
    for _ in range(200):
        drawn = random.choice(chances, 300)
        means = random.binomial(8, drawn) / 8
        spread.append(means.mean())
        estimate = proportion(means, np.full(300, 8.0), np.arange(300))
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    half = (estimate.high - estimate.low) / 2
    assert half == pytest.approx(1.96 * np.std(spread), rel=0.15)
    assert half > 1.7 * (interval(1200, 2400)[1] - 0.5), "as independent ones they would be twice too sure"


def test_one_attempt_at_each_task_is_a_binomial_of_wins_and_losses() -> None:
    first = floats(*([1.0] * 9 + [0.0] * 3 + [1.0] * 5))
    second = floats(*([0.0] * 9 + [1.0] * 3 + [1.0] * 5))
    (difference,) = compare(np.stack([first, second], axis=1), np.arange(17), [(0, 1)], seed=0)
    assert difference is not None
    assert (difference.tasks, difference.wins, difference.losses, difference.value) == (17, 9, 3, pytest.approx(6 / 17))
    assert difference.probability == pytest.approx(1 - stats.beta.cdf(0.5, 9.5, 3.5), abs=0.01)
    assert difference.low < difference.value < difference.high


def test_few_tasks_never_give_certainty() -> None:
    rates = np.array([[1.0, 0.0]])
    (difference,) = compare(rates, codes(0), [(0, 1)], seed=0)
    assert difference is not None
    assert difference.probability == pytest.approx(1 - stats.beta.cdf(0.5, 1.5, 0.5), abs=0.01)
    (level,) = compare(np.ones((30, 2)), np.arange(30), [(0, 1)], seed=0)
    assert level is not None
    assert (level.value, level.probability, level.repo_probability) == (0, 0.5, 0.5)
    sweep = compare(np.tile([1.0, 0.0], (40, 1)), np.zeros(40, dtype=np.int64), [(0, 1)], seed=0)[0]
    assert sweep is not None
    assert sweep.probability > 0.999
    assert sweep.repo_probability < 0.9, "of one repository nothing certain follows for others"
    assert compare(np.array([[1.0, np.nan], [np.nan, 0.0]]), codes(0, 1), [(0, 1)], seed=0) == [None]
    assert compare(rates, codes(0), [], seed=0) == []


def test_intervals_of_a_difference_have_their_coverage() -> None:
    random, covered, runs = np.random.default_rng(3), 0, 150
    for _ in range(runs):
        hard = random.normal(0, 1.5, 60)
        chances = 1 / (1 + np.exp(-np.stack([0.5 - hard, -hard], axis=1)))
        rates = random.binomial(4, chances) / 4
        (difference,) = compare(rates, np.arange(60) % 12, [(0, 1)], seed=0)
        assert difference is not None
        true = 0.0
        grid = np.random.default_rng(0).normal(0, 1.5, 20000)
        true = float((1 / (1 + np.exp(grid - 0.5)) - 1 / (1 + np.exp(grid))).mean())
        covered += difference.low <= true <= difference.high
    assert covered / runs >= 0.91


def test_agreement_is_cohen_s_kappa() -> None:
    # 20 both yes, 5 and 10 apart, 15 both no: kappa 0.4 (the textbook example of 50 proposals).
    first = floats(*([1] * 20 + [1] * 5 + [0] * 10 + [0] * 15))
    second = floats(*([1] * 20 + [0] * 5 + [1] * 10 + [0] * 15))
    level, common = agreement(np.stack([first, second, np.ones(50)], axis=1))
    assert level[0, 1] == pytest.approx(0.4)
    assert level[0, 0] == pytest.approx(1)
    assert np.isnan(level[0, 2]), "who resolves all agrees with anybody by chance"
    assert common[0, 1] == 50
    apart, none = agreement(np.array([[1.0, np.nan], [np.nan, 1.0]]))
    assert np.isnan(apart[0, 1])
    assert none[0, 1] == 0


def test_diversity_is_the_probability_that_two_bugs_differ() -> None:
    kinds = ["a"] * 3 + ["b"] * 2 + ["c"]
    pairs = list(itertools.combinations(kinds, 2))
    estimate = diversity(kinds, ["p"] * 3 + ["q"] * 3)
    assert estimate is not None
    assert estimate.value == pytest.approx(sum(x != y for x, y in pairs) / len(pairs))
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 < estimate.low < estimate.value < estimate.high < 1
    assert diversity(["a"], ["p"]) is None
    alike = diversity(["a", "a"], ["p", "p"])
    assert alike is not None
    assert (alike.value, alike.low) == (0, 0)
    assert alike.high is not None
    assert alike.high > 0.7, "two bugs say little"


def test_intervals_of_diversity_have_their_coverage() -> None:
    random, covered = np.random.default_rng(4), 0
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    for _ in range(400):
        kinds = random.choice(4, 40, p=shares).tolist()
        estimate = diversity(kinds, ["p"] * 40)
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 1 - (shares**2).sum() <= estimate.high
    assert covered / 400 >= 0.92


def test_the_variance_of_diversity_is_that_of_the_jackknife() -> None:
    """Both intervals follow from the definition, leaving out one bug or one repository at a time."""
    kinds, repos = list("aabbbcabc"), list("ppppqqqrr")

    def simpson(chosen: list[int]) -> float:
        pairs = list(itertools.permutations(chosen, 2))
        return sum(kinds[i] != kinds[j] for i, j in pairs) / len(pairs)

    def bounds(groups: list[str], least: float) -> tuple[float, float]:
        every = range(len(kinds))
        values = floats(*(simpson([i for i in every if groups[i] != group]) for group in sorted(set(groups))))
        variance = (len(values) - 1) / len(values) * float(((values - values.mean()) ** 2).sum())
        value = simpson(list(every))
        pairs = max(least, value * (1 - value) / variance)
        return interval(value * pairs, pairs)

    estimate = diversity(kinds, repos)
    assert estimate is not None
    by_bug = bounds([str(i) for i in range(len(kinds))], len(kinds) / 2)
    by_repo = bounds(repos, float(effective(floats(4, 3, 2))) / 2)
    assert estimate.value == pytest.approx(simpson(list(range(len(kinds)))))
    assert (estimate.low, estimate.high) == pytest.approx(by_bug)
    hull = min(by_bug[0], by_repo[0]), max(by_bug[1], by_repo[1])
    assert (estimate.repo_low, estimate.repo_high) == pytest.approx(hull)


@pytest.mark.parametrize(
    ("kinds", "repos"), [("abc", "pqr"), ("ab", "pq"), ("aab", "ppq"), ("aaaa", "ppqq"), ("aabb", "pqpq")]
)
def test_diversity_without_a_variance_has_intervals(kinds: str, repos: str) -> None:
    """Of these bugs, too few remain without a repository, or all that remain are equally diverse."""
    estimate = diversity(list(kinds), list(repos))
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.repo_low is not None
    assert estimate.repo_high is not None
    assert 0 <= estimate.repo_low <= estimate.low <= estimate.value <= estimate.high <= estimate.repo_high <= 1


def test_a_mean_of_rewards_is_a_rate_on_another_scale() -> None:
    rates, weights, repos = floats(0.2, 0.9, 0.5, 1.0), floats(8, 4, 8, 2), codes(0, 0, 1, 1)
    rate, reward = proportion(rates, weights, repos), proportion(2 * rates - 1, weights, repos, low=-1.0, high=1.0)
    assert rate is not None
    assert reward is not None
    for name in ("value", "low", "high", "repo_low", "repo_high"):
        assert getattr(reward, name) == pytest.approx(2 * getattr(rate, name) - 1)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([1.0, 4.0, 32.0]), st.integers(0, 3)), min_size=2, max_size=12)
)
def test_further_repositories_are_no_better_known_than_further_tasks(tasks: list[tuple[float, float, int]]) -> None:
    shares, weights, repos = zip(*tasks, strict=True)
    estimate = proportion(floats(*shares), floats(*weights), codes(*repos))
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low <= estimate.value + 1e-12
    assert estimate.value <= estimate.high + 1e-12
    if estimate.repo_low is not None and estimate.repo_high is not None:
        assert estimate.repo_low <= estimate.low
        assert estimate.high <= estimate.repo_high
