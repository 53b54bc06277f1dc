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
from rollout_parts import add_task, keep, played, record
from rollout_parts import store as rollout_store

from harness.cli.main import main
from harness.leaderboard.loading import read_runs
from harness.records.attempt import Attempt, Status
from harness.records.rewards import reward_at_rate, solver_reward
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


@pytest.mark.long
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
    bug = episode(1, solvers={"m": "uu"})
    rollouts = [replace(r, tests=n == 0).by(rule) for n, r in enumerate(bug.rollouts)]
    result = replace(bug, rollouts=tuple(rollouts))
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
    result = Attempt("i", "m", misleading, resolved=resolved, tests=tests, patch_sha256="0" * 64)
    assert [result.by(rule).status for rule in Rule] == [strict, lenient]
    assert Attempt.from_json(result.to_json()) == result


def test_a_leaderboard_follows_the_rule(tmp_path: Path) -> None:
    results = [replace(o, tests=True) for o in outcomes("m", {"a__b-1": "u"})]
    bug = episode(1, solvers={"m": "u"})
    bug = replace(bug, rollouts=tuple(replace(r, tests=True) for r in bug.rollouts))
    runs = [str(results_only(tmp_path / "r", results)), str(store(tmp_path / "s", [bug]))]
    for rule, status in ((Rule.STRICT, "unresolved"), (Rule.TESTS, "resolved")):
        assert {a.status for a in read_runs(runs, rule=rule).attempts} == {status}


def test_the_part_of_a_judge_stays_in_the_reward_of_another_rule() -> None:
    (rollout,) = episode(1, solvers={"m": "u"}).rollouts
    judged = replace(rollout, tests=True, score=0.5, reward=-1.0 + 0.25)
    assert judged.by(Rule.TESTS).reward == pytest.approx(1.25)
    assert judged.by(Rule.TESTS).by(Rule.STRICT).reward == pytest.approx(-0.75)


@pytest.mark.parametrize(
    ("recorded", "rate", "new", "expected"),
    [
        (-0.8, 0.0, 0.5, 0.1),
        (0.1, 0.5, 1.0, -0.8),
        (1 - 1.5 * 0.25, 0.25, 0.5, 0.25),
        (1.0, 0.0, 0.5, 1.0),
        (None, None, 0.5, None),
        (0.1, 0.5, None, None),
    ],
)
def test_an_injectors_reward_at_another_rate_has_the_recorded_alpha_and_kind(
    recorded: float | None, rate: float | None, new: float | None, expected: float | None
) -> None:
    reward = reward_at_rate(recorded, rate, new)
    assert reward == (None if expected is None else pytest.approx(expected))


def test_an_export_of_stored_rollouts_follows_the_rule(tmp_path: Path) -> None:
    folder = rollout_store(tmp_path / "s")
    add_task(folder)
    keep(folder, "a" * 24, False, grade={"tests": True})
    keep(folder, "b" * 24, False, attempt=1, commands=("ls", "rm"))

    def exported(source: Path, *more: str) -> dict[str, tuple[Any, ...]]:
        out = tmp_path / "rows.jsonl"
        assert main(["export", str(source), "--format", "rollouts", "--out", str(out), *more]) == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        out.unlink()
        return {r["rollout_id"][0]: (r["reward"], r["task"]["solve_rate"], r["verdict"]["rule"]) for r in rows}

    strict = {"a": (-1.0, 0.0, "strict"), "b": (-1.0, 0.0, "strict")}
    lenient = {"a": (1.0, 0.5, "tests"), "b": (-1.0, 0.5, "tests")}
    assert exported(folder) == exported(folder, "--rule", "strict") == strict
    assert exported(folder, "--rule", "tests") == lenient
    assert main(["export", str(folder), "--format", "rollouts", "--out", str(tmp_path / "all.jsonl")]) == 0
    assert exported(tmp_path / "all.jsonl", "--rule", "tests") == lenient


def test_an_injectors_row_follows_the_rule(tmp_path: Path) -> None:
    folder = rollout_store(tmp_path / "s")
    add_task(folder)
    keep(folder, "a" * 24, False, grade={"tests": True})
    row = dict(record(played("i" * 24, role="injector"), 0.1, components={"solve-rate": 0.1}).data)
    row["task"] = {**row["task"], "artifact": "t1", "solve_rate": 0.5}
    (tmp_path / "injector.jsonl").write_text(json.dumps(row) + "\n")
    out = tmp_path / "out.jsonl"
    sources = [str(tmp_path / "injector.jsonl"), str(folder)]
    command = ["export", *sources, "--format", "rollouts", "--out", str(out), "--role", "injector"]
    assert main([*command, "--rule", "tests"]) == 0
    (written,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert (written["reward"], written["task"]["solve_rate"]) == (pytest.approx(-0.8), 1.0)
