"""The statistics of self-play, which works without scipy, agree with those of scipy."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from scipy import optimize, special, stats

from harness.records.posterior import posterior
from harness.records.rewards import (
    _student,
    best_solve_rate,
    expected_injector_reward,
    injector_reward,
)
from harness.selfplay.curriculum import _SOLVED, Traits, _Regression
from pytest_ssr.records.rate_interval import interval


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_quantiles_of_student_s_t(confidence: float) -> None:
    for freedom in range(1, 200):
        assert _student(freedom, confidence) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=5e-3)


def test_wilson_s_interval() -> None:
    for graded in (1, 2, 8, 40, 263):
        for solved in range(graded + 1):
            expected = stats.binomtest(solved, graded).proportion_ci(method="wilson")
            assert interval(solved, graded) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_posteriors_of_solve_rates() -> None:
    for graded in (0, 1, 8, 263, 3000):
        for solved in {0, graded // 3, graded}:
            exact = stats.beta(1 + solved, 1 + graded - solved)
            assert posterior(solved, graded) == pytest.approx((exact.mean(), *exact.interval(0.9)), abs=1e-9)


@pytest.mark.parametrize("attempts", [1, 4, 8, 32])
def test_expected_rewards(attempts: int) -> None:
    rewards = [injector_reward(True, solved / attempts) for solved in range(attempts + 1)]
    for probability in (0.0, 0.1, 0.257, 0.5, 1.0):
        weights = stats.binom.pmf(range(attempts + 1), attempts, probability)
        assert expected_injector_reward(probability, attempts) == pytest.approx(np.dot(weights, rewards), abs=1e-12)


@pytest.mark.parametrize("attempts", [2, 4, 8, 32])
def test_the_best_solve_rate(attempts: int) -> None:
    minimum = optimize.minimize_scalar(
        lambda p: -expected_injector_reward(p, attempts), bounds=(0, 1), method="bounded", options={"xatol": 1e-8}
    )
    assert best_solve_rate(attempts) == pytest.approx(minimum.x, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_regression_is_at_the_maximum_of_its_posterior(seed: int) -> None:
    rng = Random(seed)
    regression = _Regression(_SOLVED, rng)
    for _ in range(120):
        traits = Traits(
            "mutation", f"o{rng.randrange(12)}", f"{rng.randrange(4)}.py", rng.randrange(1, 30), rng.randrange(1, 40)
        )
        share = rng.randrange(9) / 8
        regression.observe(traits.features(), 1.5 * share, 1.5 * (1 - share))
    names = list(regression._members)
    design = np.zeros((len(regression._rows), len(names)))
    for column, name in enumerate(names):
        for row, value in regression._members[name]:
            design[row, column] += value
    means, precisions = np.array([regression._prior[name] for name in names]).T
    yes, total = np.array(regression._rows).T

    def negative_posterior(weights: np.ndarray) -> float:
        logits = design @ weights
        likelihood = yes * special.log_expit(logits) + (total - yes) * special.log_expit(-logits)
        return float(-likelihood.sum() + (precisions * (weights - means) ** 2).sum() / 2)

    best = optimize.minimize(negative_posterior, means, method="BFGS")
    regression.fit()
    fitted = np.array([regression._weights[name] for name in names])
    # The fit ends when no weight moves by 0.01, which is much less than two samples of the posterior differ.
    assert negative_posterior(fitted) == pytest.approx(best.fun, abs=0.1)
    np.testing.assert_allclose(special.expit(design @ fitted), special.expit(design @ best.x), atol=0.03)
