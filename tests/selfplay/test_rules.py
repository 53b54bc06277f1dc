"""Test that the rule selects the verdict of a grade for rewards, solve rates, statuses, leaderboards and exports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from board_parts import episode, outcomes, results_only, store
from play_parts import Told
from proven import Proven

from harness.leaderboard.loading import read_runs
from harness.records.evaluation_result import EvaluationResult, Status
from harness.records.rewards import solver_reward
from harness.records.trajectory import ExitReason, Journal
from harness.rollouts.runner import RolloutRunner
from harness.solvers.protocol import Solution
from pytest_ssr.grading import Grade
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule
from pytest_ssr.storage.store import Store

PASSING = Grade("", False, Reason(ReasonCode.NOT_REPAIRED, "it rounds"), tests=True)


class Fixing(Told):
    """Submits the correct repair."""

    patch: Any = None

    def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
        return Solution(self.patch, journal.end(ExitReason.SUBMITTED))


def test_the_reward_follows_the_rule_and_the_record_holds_both(
    proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, calls = Store(tmp_path / "s"), []

    def grade(*_: object, **kwargs: Any) -> Grade:
        calls.append(kwargs)
        return PASSING

    monkeypatch.setattr("harness.rollouts.runner.grade_patch", grade)
    solver = Fixing(name="fixing")
    solver.patch = proven.artifact.bug.reverse()
    verdict = replace(proven.verdict, original_s=3.5)
    rollouts = [
        RolloutRunner(proven.runner, proven.artifact, verdict, solver, store, rule=rule).attempts(1)[0]
        for rule in (Rule.TESTS, Rule.STRICT, Rule.TESTS)
    ]
    assert [r.reward for r in rollouts] == [1.0, -1.0, 1.0]
    assert [r.verdict for r in rollouts] == [True, False, True]
    assert {(r.resolved, r.tests) for r in rollouts} == {(False, True)}
    assert len(calls) == 1, "another rule needs no new grade"
    assert (calls[0]["like_s"], calls[0]["full"]) == (3.5, False)
    (path,) = store.root.glob("rollouts/*/rollout.json")
    data = json.loads(path.read_text())
    assert (data["resolved"], data["tests"], data["reason"]["code"]) == (False, True, "not-repaired")


@pytest.mark.parametrize(("rule", "rate", "reward"), [(Rule.STRICT, 0.0, -0.8), (Rule.TESTS, 0.5, 0.1)])
def test_the_injectors_reward_follows_the_rule(rule: Rule, rate: float, reward: float) -> None:
    played = episode(1, solvers={"m": "uu"})
    rollouts = [replace(r, tests=n == 0).by(rule) for n, r in enumerate(played.rollouts)]
    result = replace(played, rollouts=tuple(rollouts))
    assert result.rate == rate
    assert result.reward() == pytest.approx(reward)
    assert [r.reward for r in rollouts] == [solver_reward(r.verdict) for r in rollouts]


@pytest.mark.parametrize(
    ("resolved", "tests", "code", "strict", "lenient"),
    [
        (True, True, ReasonCode.RESOLVED, Status.RESOLVED, Status.RESOLVED),
        (False, True, ReasonCode.NOT_REPAIRED, Status.UNRESOLVED, Status.RESOLVED),
        (False, False, ReasonCode.TESTS_FAIL, Status.UNRESOLVED, Status.UNRESOLVED),
        (False, False, ReasonCode.TIMED_OUT, Status.TIMED_OUT, Status.TIMED_OUT),
        (False, True, ReasonCode.TIMED_OUT, Status.TIMED_OUT, Status.RESOLVED),
        (False, False, ReasonCode.PATCH_DOES_NOT_APPLY, Status.ERROR, Status.ERROR),
        (None, None, ReasonCode.OUT_OF_MEMORY, Status.INFRA, Status.INFRA),
    ],
)
def test_a_status_follows_from_codes(
    resolved: bool | None, tests: bool | None, code: ReasonCode, strict: Status, lenient: Status
) -> None:
    """The text of the reason has no effect."""
    misleading = Reason(code, "the time limit, memory, the patch does not apply")
    result = EvaluationResult("i", "r", "m", Status.UNRESOLVED, misleading, resolved, tests)
    assert [result.by(rule).status for rule in Rule] == [strict, lenient]
    assert EvaluationResult.from_json(result.to_json()) == result


def test_a_leaderboard_follows_the_rule(tmp_path: Path) -> None:
    results = [replace(o, tests=True) for o in outcomes("m", {"a__b-1": "u"})]
    bug = episode(1, solvers={"m": "u"})
    bug = replace(bug, rollouts=tuple(replace(r, tests=True) for r in bug.rollouts))
    runs = [str(results_only(tmp_path / "r", results)), str(store(tmp_path / "s", [bug]))]
    for rule, status in ((Rule.STRICT, "unresolved"), (Rule.TESTS, "resolved")):
        assert {a.status for a in read_runs(runs, rule=rule).attempts} == {status}
