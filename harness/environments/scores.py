"""Score the steps of an episode: the outcome alone by default, and shaping that is named.

A score is made once for each episode and called after every step; the reward of a step is the weighted sum of its
scores. Other packages add scores through the entry points `pytest_ssr.scores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from harness.agents.process_reward import ProcessReward
from harness.environments.extensions import entry_points_of, load_extension
from harness.environments.task import Outcome
from harness.records.trajectory import Trajectory
from pytest_ssr.errors import SettingsError
from pytest_ssr.patch import Patch

GROUP = "pytest_ssr.scores"
OUTCOME, TESTS, PROCESS = "outcome", "tests", "process"


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of an episode after a step."""

    trajectory: Trajectory
    """The record so far."""
    patch: Patch | None
    """The changes so far; None if they cannot be submitted."""
    outcome: Outcome | None
    """The result; None until the end."""
    tests_passing: Callable[[Patch], float | None]
    """Returns the share of the FAIL_TO_PASS tests that pass with a patch, which is graded for it."""


class Score(Protocol):
    """A score of one episode."""

    def __call__(self, moment: Moment) -> float:
        """Return the score of the newest step."""


def score_outcome(moment: Moment) -> float:
    """Return the role's reward at the end, and 0 before."""
    return (moment.outcome.reward or 0.0) if moment.outcome is not None else 0.0


class TestsPassing:
    """Scores the change in the share of passing FAIL_TO_PASS tests.

    It is a difference of potentials, so it does not change which policy is the best (Ng, Harada and Russell, ICML
    1999). Each patch that differs from the last one is graded, which takes as long as any grade.
    """

    __test__ = False

    def __init__(self) -> None:
        self._last = 0.0
        self._patch = b""

    def __call__(self, moment: Moment) -> float:
        """Return the difference to the step before; 0 if there is no grade or nothing new to grade."""
        if moment.patch is None or moment.patch.data == self._patch:
            return 0.0
        self._patch = moment.patch.data
        share = moment.tests_passing(moment.patch) if moment.patch.data.strip() else 0.0
        if share is None:
            return 0.0
        change, self._last = share - self._last, share
        return change


class ProcessScore:
    """Scores the steps with a judge model, all at once at the end."""

    def __init__(self, judge: ProcessReward) -> None:
        self._judge = judge

    def __call__(self, moment: Moment) -> float:
        """Return the mean score of the steps at the end, and 0 before; raises ModelError if the judge fails."""
        if moment.outcome is None or moment.outcome.reward is None:
            return 0.0
        values = [s.score for s in self._judge.scores(moment.trajectory) if s.score is not None]
        return fmean(values) if values else 0.0


ScoreFactory = Callable[[], Score]


def load_scores(weights: Mapping[str, float], judge: ProcessReward | None) -> dict[str, tuple[float, ScoreFactory]]:
    """Return the weight and the factory of each named score.

    Raises SettingsError for an unknown name, an invalid weight, no score at all, or `process` without a judge.
    """
    if not weights:
        raise SettingsError("an environment needs at least one score; use {'outcome': 1.0}")
    return {name: (_weight(name, weight), _factory(name, judge)) for name, weight in weights.items()}


def _weight(name: str, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise SettingsError(f"the weight of the score {name!r} must be a finite number, not {weight!r}")
    return float(weight)


def _factory(name: str, judge: ProcessReward | None) -> ScoreFactory:
    if name == OUTCOME:
        return lambda: score_outcome
    if name == TESTS:
        return TestsPassing
    if name == PROCESS:
        if judge is None:
            raise SettingsError("the score 'process' needs a judge; name its model with judge=...")
        return lambda: ProcessScore(judge)
    offered = entry_points_of(GROUP)
    if name not in offered:
        names = ", ".join([OUTCOME, TESTS, PROCESS, *sorted(offered)])
        raise SettingsError(f"there is no score {name!r}; choose from {names}")
    factory: ScoreFactory = load_extension(offered[name])
    return factory


def checked_score(name: str, value: object) -> float:
    """Return the value of a score; raises SettingsError if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SettingsError(f"the score {name!r} returned {value!r}; a score must be a finite number")
    return float(value)
