"""Which of the two verdicts of a grade decides: rewards, solve rates, statuses, leaderboards, exports."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from board_parts import episode, outcomes, results_only, store
from play_parts import Told
from proven import Proven

from harness.evaluation.outcome import Outcome, Status
from harness.leaderboard.reading import read_runs
from harness.options import chosen_rule
from harness.rewards import solver_reward
from harness.solvers.protocol import Solution
from harness.solving import Solving
from harness.trajectory import ExitReason, Journal
from pytest_ssr.errors import SettingsError
from pytest_ssr.grading import Grade
from pytest_ssr.reasons import Reason, ReasonCode, Rule
from pytest_ssr.store import Store

PASSING = Grade("", False, Reason(ReasonCode.NOT_REPAIRED, "it rounds"), tests=True)


class Fixing(Told):
    """Hands in the right repair."""

    patch: Any = None

    def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
        return Solution(self.patch, journal.end(ExitReason.SUBMITTED))


def test_the_reward_follows_the_rule_and_the_record_holds_both(
    proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, given = Store(tmp_path / "s"), []

    def grade(*_: object, **words: Any) -> Grade:
        given.append(words)
        return PASSING

    monkeypatch.setattr("harness.solving.grade_patch", grade)
    solver = Fixing(name="fixing")
    solver.patch = proven.artifact.bug.reverse()
    verdict = replace(proven.verdict, original_s=3.5)
    found = [
        Solving(proven.bench, proven.artifact, verdict, solver, kept, rule=rule).attempts(1)[0]
        for rule in (Rule.TESTS, Rule.STRICT, Rule.TESTS)
    ]
    assert [r.reward for r in found] == [1.0, -1.0, 1.0]
    assert [r.verdict for r in found] == [True, False, True]
    assert {(r.resolved, r.tests) for r in found} == {(False, True)}
    assert len(given) == 1, "another rule costs no other grade"
    assert (given[0]["like_s"], given[0]["full"]) == (3.5, False)
    (path,) = kept.root.glob("rollouts/*/rollout.json")
    data = json.loads(path.read_text())
    assert (data["resolved"], data["tests"], data["reason"]["code"]) == (False, True, "not-repaired")


@pytest.mark.parametrize(("rule", "rate", "reward"), [(Rule.STRICT, 0.0, -0.8), (Rule.TESTS, 0.5, 0.1)])
def test_the_injectors_reward_follows_the_rule(rule: Rule, rate: float, reward: float) -> None:
    played = episode(1, solvers={"m": "uu"})
    tried = [replace(r, tests=n == 0).by(rule) for n, r in enumerate(played.rollouts)]
    found = replace(played, rollouts=tuple(tried))
    assert found.rate == rate
    assert found.reward() == pytest.approx(reward)
    assert [r.reward for r in tried] == [solver_reward(r.verdict) for r in tried]


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
    """The text says something else."""
    misleading = Reason(code, "the time limit, memory, the patch does not apply")
    made = Outcome("i", "r", "m", Status.UNRESOLVED, misleading, resolved, tests)
    assert [made.by(rule).status for rule in Rule] == [strict, lenient]
    assert Outcome.from_json(made.to_json()) == made


def test_a_leaderboard_follows_the_rule(tmp_path: Path) -> None:
    made = [replace(o, tests=True) for o in outcomes("m", {"a__b-1": "u"})]
    bug = episode(1, solvers={"m": "u"})
    bug = replace(bug, rollouts=tuple(replace(r, tests=True) for r in bug.rollouts))
    runs = [str(results_only(tmp_path / "r", made)), str(store(tmp_path / "s", [bug]))]
    for rule, status in ((Rule.STRICT, "unresolved"), (Rule.TESTS, "resolved")):
        assert {a.status for a in read_runs(runs, rule=rule).attempts} == {status}


def test_an_unknown_rule_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match="--rule is strict or tests, not 'lax'"):
        chosen_rule(Namespace(rule="lax"))
