"""Test which results of a run are final, repeated or counted, and how runs are named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from model_server import serving
from play_parts import Ordered, Told, Writing, selfplay
from proven import Proven

from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import ProcessReward
from harness.injectors.campaign import ModelCampaign
from harness.injectors.model import Injected, ModelInjector
from harness.models.http import HttpModel
from harness.models.protocol import hash_path, identity_of
from harness.models.scripted import ScriptedModel
from harness.models.vllm import VllmModel
from harness.records.attempt import Attempt
from harness.records.episode import Episode
from harness.records.messages import ASSISTANT, Message, Reply, Usage
from harness.records.trajectory import ExitReason, Journal, Step, read_trajectory
from harness.rollouts.player_factory import PlayerFactory
from harness.rollouts.runner import RolloutRunner
from harness.rollouts.runner import validated_verdict as prove
from harness.selfplay.curriculum import Curriculum, Table
from harness.selfplay.higher_order import HigherOrderArtifacts
from harness.selfplay.play_settings import PlaySettings
from harness.selfplay.project import Project
from harness.selfplay.project_play import Watch
from harness.selfplay.report import lines, tables
from harness.selfplay.round_store import read_round
from harness.selfplay.rounds import SelfPlay
from harness.solvers.model import ModelSolver
from harness.solvers.protocol import Solution, SolverTask
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.checks import Finding
from pytest_ssr.errors import ModelError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.extensions import Extensions
from pytest_ssr.grading import Grade
from pytest_ssr.injectors.combination import CombinationInjector
from pytest_ssr.injectors.history import HistoryInjector
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.sandbox import load_provider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import Verdicts, has_verdict

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]


@pytest.fixture
def bugs(proven: Proven) -> Store:
    """A store shared by all tests here, so that the bugs are made once."""
    return proven.store


def test_the_same_bug_in_two_rounds_counts_once(project: Path, bugs: Store) -> None:
    events: list[str] = []
    watch = Watch(attempt=lambda number, project, attempt: events.append(f"{number} {attempt.operator}"))
    episodes = selfplay(project, bugs, Told(), watch, rounds=2).play()
    assert events == ["0 op-add", "1 op-clamp"]
    assert [(e.round, e.operator) for e in episodes] == [(1, "op-add"), (2, "op-clamp")]


@pytest.mark.long
@pytest.mark.parametrize("attempts", [1, 2])
def test_jobs_solve_different_bugs_at_the_same_time(project: Path, bugs: Store, attempts: int) -> None:
    meeting, first = threading.Barrier(2, timeout=30), list[str]()

    @dataclass
    class Meeting(Told):
        def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
            if task.id not in first:
                first.append(task.id)
                meeting.wait()
            return super().solve(task, seed=seed, journal=journal)

    solver = Meeting(name=f"meeting-{attempts}")
    episodes = selfplay(project, bugs, solver, count=2, attempts=attempts, jobs=2).play()
    assert len(first) == 2
    assert [len(e.rollouts) for e in episodes if e.valid] == [attempts] * 2
    assert sorted(solver.asked) == sorted((task, attempt) for task in first for attempt in range(attempts))


def test_checks_of_plugins_reject_bugs_and_verdicts_are_observed(project: Path, bugs: Store) -> None:
    observed: list[Verdict] = []

    def call(name: str, **arguments: Any) -> list[Any]:
        if name == "pytest_ssr_verdict":
            observed.append(arguments["verdict"])
        check = ("no-sum", lambda case: Finding(b"a - b" not in case.artifact.bug.data, "a sum"))
        return [[check]] if name == "pytest_ssr_checks" else []

    extensions = Extensions(call)
    play = selfplay(project, bugs, Told(), extensions=extensions, attempts=1)
    assert play.key != selfplay(project, bugs, Told(), attempts=1).key
    episodes = play.play()
    assert [(e.operator, e.check) for e in episodes] == [("op-add", "no-sum"), ("op-clamp", "")]
    assert [(v.artifact_id, v.checks[-1].name) for v in observed] == [(episodes[1].artifact_id, "no-sum")]


def test_checks_of_plugins_are_passed_to_injectors_of_artifacts(proven: Proven, tmp_path: Path) -> None:
    checks = (("own", lambda case: Finding(True, "")),)
    seen: list[Any] = []

    class Capturing(HigherOrderArtifacts):
        def inject(self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Any = ()) -> Injected:
            seen.append(extra_checks)
            done = journal.end(ExitReason.SUBMITTED, "")
            return Injected(None, None, "direct", done, CheckReason(CheckCode.NOTHING_CHANGED))

    store, injector = Store(tmp_path / "s"), Capturing([])
    campaign = ModelCampaign(proven.runner, store, injector, seed=0, extra_checks=checks)
    campaign.attempt(0)
    assert seen == [checks]
    assert campaign.key != ModelCampaign(proven.runner, store, injector, seed=0).key


@pytest.mark.long
def test_a_repeated_bug_of_a_model_is_paid_for_but_counts_once(project: Path, proven: Proven) -> None:
    solver = Told()
    play = selfplay(project, proven.store, solver, model=Writing(proven.artifact), count=2, attempts=1)
    episodes = play.play()
    assert [(e.valid, e.repeated, len(e.rollouts), e.tokens) for e in episodes] == [
        (True, True, 0, 220),
        (True, False, 1, 220),
    ]
    assert episodes[0].reward(kind="validity") is None
    (total,) = tables(episodes, alpha=0.8, kind="solve-rate")["all"]
    assert (total["tried"], total["valid"], total["tokens"]) == (1, 1, 440 + 15)
    bad = replace(proven.artifact, bug=proven.artifact.weaken)
    episodes = selfplay(project, proven.store, solver, model=Writing(bad), count=2).play()
    assert [(e.valid, e.repeated, e.reward(), e.tokens) for e in episodes] == [
        (False, False, -1.0, 220),
        (False, True, -1.0, 220),
    ]
    assert len(solver.asked) == 1


def test_a_finished_round_is_final_and_a_longer_run_continues_from_it(project: Path, bugs: Store) -> None:
    solver = Told(name="final")
    first = selfplay(project, bugs, solver).play()
    assert [r.resolved for r in first[0].rollouts] == [False, False]
    asked = list(solver.asked)
    assert selfplay(project, bugs, solver).play() == first
    assert solver.asked == asked
    longer = selfplay(project, bugs, solver, rounds=2).play()
    assert longer[:1] == first
    assert len(solver.asked) == len(asked) + 2


def test_a_round_with_a_missing_grade_and_later_rounds_are_not_finished(project: Path, bugs: Store) -> None:
    solver = Told(
        lambda attempt: ExitReason.STEP_LIMIT if attempt or len(solver.asked) > 2 else ExitReason.INFRA, "ill"
    )

    def played() -> tuple[list[list[bool | None]], list[bool]]:
        play = selfplay(project, bugs, solver, rounds=2)
        episodes = play.play()
        kept = [read_round(bugs, play.key, number, 0, attempts=2) is not None for number in range(2)]
        return [[r.resolved for r in e.rollouts] for e in episodes], kept

    assert played() == ([[None, False], [False, False]], [False, False])
    asked = len(solver.asked)
    assert played() == ([[False, False], [False, False]], [True, True])
    assert solver.asked[asked:] == solver.asked[:1], "only the attempt without a grade runs again"


def test_a_deleted_verdict_is_made_again(project: Path, bugs: Store) -> None:
    (first,) = selfplay(project, bugs, Told()).play()
    shutil.rmtree(bugs.root / "verdicts" / first.artifact_id)
    (again,) = selfplay(project, bugs, Told(), attempts=3).play()
    assert (again.artifact_id, len(again.rollouts)) == (first.artifact_id, 3)
    assert has_verdict(bugs, first.artifact_id)


def by_another_rule(runner: Runner, patch: pytest.MonkeyPatch) -> Runner:
    return replace(runner, settings=RuleSettings(min_passing_tests=2))


def in_another_environment(runner: Runner, patch: pytest.MonkeyPatch) -> Runner:
    return replace(runner, interpreter=replace(runner.interpreter, environment_hash="other"))


def in_another_sandbox(runner: Runner, patch: pytest.MonkeyPatch) -> Runner:
    return replace(runner, provider=load_provider("process"))


def by_another_version(runner: Runner, patch: pytest.MonkeyPatch) -> Runner:
    patch.setattr("pytest_ssr.storage.verdict_store.code_hash", lambda: "other")
    return runner


@pytest.mark.parametrize(
    "change",
    [by_another_rule, in_another_environment, in_another_sandbox, by_another_version],
    ids=lambda c: c.__name__,
)
def test_a_verdict_holds_only_under_its_conditions(
    proven: Proven,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Runner, pytest.MonkeyPatch], Runner],
) -> None:
    store, runner, artifact_id = Store(tmp_path / "s"), proven.runner.scoped(), proven.verdict.artifact_id
    Verdicts(store, runner).put(proven.verdict)
    runner = change(runner, monkeypatch)
    assert Verdicts(store, runner).get(artifact_id) is None
    other = replace(proven.verdict, certified="selected")
    Verdicts(store, runner).put(other)
    assert Verdicts(store, runner).get(artifact_id) == other
    monkeypatch.undo()
    assert Verdicts(store, proven.runner).get(artifact_id) == proven.verdict, "both verdicts are stored"
    assert Verdicts(store, proven.runner, extra_checks=["sober"]).get(artifact_id) is None


def test_a_verdict_of_an_earlier_version_is_made_again_and_marks_the_artifact_as_own(
    proven: Proven, tmp_path: Path
) -> None:
    store, made = Store(tmp_path / "s"), list[str]()
    assert not has_verdict(store, proven.verdict.artifact_id)
    store.put_record("verdicts", proven.verdict.artifact_id, replace(proven.verdict, fail_to_pass=()).to_json())
    assert has_verdict(store, proven.verdict.artifact_id)
    for _ in range(2):
        verdict = prove(proven.artifact, proven.runner, store, begin=lambda: made.append("again"))
        assert (verdict.fail_to_pass, made) == (proven.verdict.fail_to_pass, ["again"])


def test_a_run_ends_without_its_model_and_can_resume(project: Path, bugs: Store) -> None:
    solver = Told(lambda _: ExitReason.MODEL, "gone")
    with pytest.raises(ModelError, match=r"no attempt at .* has a grade: the attempt was aborted: model: as told"):
        selfplay(project, bugs, solver).play()
    solver.does = lambda _: ExitReason.STEP_LIMIT
    (episode,) = selfplay(project, bugs, solver).play()
    assert [r.resolved for r in episode.rollouts] == [False, False]
    assert [r.tokens for r in episode.rollouts] == [30, 30], "the tokens of both tries"
    assert [r.unpriced for r in episode.rollouts] == [2, 2]


def test_an_unexpected_error_in_one_attempt_does_not_end_the_run(project: Path, bugs: Store) -> None:
    class Falling(Told):
        def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
            if not journal.trajectory.attempt:
                raise OverflowError("a number")
            return super().solve(task, seed=seed, journal=journal)

    (episode,) = selfplay(project, bugs, Falling(name="falling")).play()
    assert [r.resolved for r in episode.rollouts] == [None, False]
    assert episode.rollouts[0].reason.code is ReasonCode.ATTEMPT_ABORTED
    assert "infra: OverflowError: a number (test_rounds.py, line " in episode.rollouts[0].reason.detail


@pytest.mark.parametrize("form", ["flattened", "paper"])
def test_a_failed_repair_is_a_second_order_bug_without_an_injector_reward(
    project: Path, proven: Proven, bugs: Store, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    buggy = proven.runner.original.apply(proven.artifact.bug)
    wrong = buggy.replace({"calc.py": FileEntry(proven.source.replace("return a + b", "return a ** b").encode())})

    class Wrong(Told):
        def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
            return Solution(wrong.patch_from(buggy), journal.end(ExitReason.SUBMITTED))

    monkeypatch.setattr(
        "harness.rollouts.runner.grade_patch",
        lambda *_, **__: Grade("", False, Reason(ReasonCode.NOT_REPAIRED), tests=True),
    )
    first, second = selfplay(project, bugs, Wrong(name="wrong"), higher_order=1, higher_order_form=form).play()
    assert (first.order, first.reward()) == (1, -0.8)
    assert (second.order, second.parent, second.strategy) == (2, first.artifact_id, "higher-order")
    assert second.reward() is None
    assert [r.resolved for r in second.rollouts] == [False, False]


def test_the_name_of_a_run_depends_on_all_its_settings(project: Path, bugs: Store, tmp_path: Path) -> None:
    base = selfplay(project, bugs, Told())
    assert selfplay(project, bugs, Told(), rounds=5, jobs=2).key == base.key
    others: list[dict[str, Any]] = [
        {"alpha": 0.5},
        {"reward": "validity"},
        {"rule": RuleSettings(min_failing_tests=2)},
        {"sandbox": "process"},
        {"attempts": 3},
        {"seed": 1},
        {"higher_order_form": "paper"},
    ]
    keys = {base.key, *(selfplay(project, bugs, Told(), **o).key for o in others)}
    assert len(keys) == len(others) + 1


def test_another_time_limit_gives_another_attempt(proven: Proven, tmp_path: Path) -> None:
    settings = proven.runner.settings
    longer = replace(settings, time_limit_s=settings.time_limit_s + 1)
    runners = [replace(proven.runner.scoped(), settings=s) for s in (settings, longer)]
    store = Store(tmp_path / "s")
    keys = {RolloutRunner(b, proven.artifact, proven.verdict, Told(), store).key(0) for b in runners}
    assert len(keys) == 2


class Fixing(Told):
    def __init__(self, patch: Patch) -> None:
        super().__init__(name="fixing")
        self.patch = patch

    def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
        self.asked.append((task.id, 0))
        return Solution(self.patch, journal.end(ExitReason.SUBMITTED))


@pytest.mark.long
def test_only_a_missing_grade_is_made_again(proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solver, store = Fixing(proven.artifact.bug.reverse()), Store(tmp_path / "s")

    def solving() -> Attempt:
        return RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store).attempts(1)[0]

    def interrupted(*_: object, **__: object) -> Grade:
        raise KeyboardInterrupt

    def unforeseen(*_: object, **__: object) -> Grade:
        raise RecursionError("too deep")

    with monkeypatch.context() as patch:
        patch.setattr("harness.rollouts.runner.grade_patch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            solving()
        patch.setattr(
            "harness.rollouts.runner.grade_patch",
            lambda *_, **__: Grade("", None, Reason(ReasonCode.SANDBOX_FAILED, "the disk is full")),
        )
        assert solving().resolved is None
        patch.setattr("harness.rollouts.runner.grade_patch", unforeseen)
        reason = solving().reason
        assert reason.code is ReasonCode.INTERNAL_ERROR
        assert reason.detail.startswith("RecursionError: too deep (test_rounds.py, line ")
    assert solving().resolved is True
    assert len(solver.asked) == 1


@dataclass
class Counting:
    """A judge that fails after a number of requests."""

    left: int
    asked: int = 0
    name: str = "counting"
    context_tokens: int = 100_000

    def reply(self, *_: Any, **__: Any) -> Reply:
        if not self.left:
            raise ModelError("gone")
        self.left, self.asked = self.left - 1, self.asked + 1
        return Reply(Message("assistant", r"\boxed{0.5}"), "stop", Usage(100, 10), cost_usd=0.25)

    def count(self, *_: Any, **__: Any) -> int:
        return 1

    def session(self, rollout: str) -> Counting:
        return self

    def close(self) -> None:
        pass


class Stepping(Fixing):
    """Takes three steps before it submits."""

    at = "here"

    def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
        for number in range(3):
            journal.step(Step(number, -1, "tool", "look", {"at": self.at}))
        return super().solve(task, seed=seed, journal=journal)


def test_the_votes_of_a_judge_before_its_failure_are_stored_and_counted(proven: Proven, tmp_path: Path) -> None:
    solver, store, model = Stepping(proven.artifact.bug.reverse()), Store(tmp_path / "s"), Counting(4)
    judge = ProcessReward(model, votes=3)  # type: ignore[arg-type] # has all that a judge uses

    def solving() -> Attempt:
        return RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store, judge=judge).attempts(1)[0]

    with pytest.raises(ModelError, match="the judge counting, step 1: gone"):
        solving()
    model.left = 5
    rollout = solving()
    assert (rollout.resolved, model.asked, model.left) == (True, 9, 0)
    assert (rollout.score, rollout.tokens, rollout.cost_usd) == (0.5, 9 * 110, 9 * 0.25)
    assert (solving(), model.asked) == (rollout, 9)


def test_the_record_of_a_rollout_has_the_reward_of_the_last_judge(proven: Proven, tmp_path: Path) -> None:
    solver, store, model = Stepping(proven.artifact.bug.reverse()), Store(tmp_path / "s"), Counting(9)

    def solving(*coefficients: float) -> tuple[Attempt, Attempt]:
        """Return an attempt with a judge of this coefficient, or with none, and its record."""
        judges = [ProcessReward(model, votes=3, coefficient=c) for c in coefficients]  # type: ignore[arg-type]
        runner = RolloutRunner(
            proven.runner, proven.artifact, proven.verdict, solver, store, judge=next(iter(judges), None)
        )
        attempt = runner.attempts(1)[0]
        (path,) = store.root.glob("rollouts/*/rollout.json")
        return attempt, Attempt.read(json.loads(path.read_text()))

    for coefficient, reward in ((0.5, 1.25), (1.0, 1.5)):
        attempt, record = solving(coefficient)
        assert (attempt.reward, attempt.score, attempt.tokens) == (reward, 0.5, 9 * 110)
        assert (record.reward, record.score, record.tokens) == (reward, 0.5, 0), "the cost is stored with the votes"
    attempt, _ = solving()
    assert (attempt.reward, attempt.score, attempt.tokens, model.asked) == (1.0, None, 0, 9)


@pytest.mark.long
def test_invalid_votes_and_those_on_an_earlier_trajectory_are_requested_again(proven: Proven, tmp_path: Path) -> None:
    solver, store, model = Stepping(proven.artifact.bug.reverse()), Store(tmp_path / "s"), Counting(100)
    judge = ProcessReward(model, votes=1)  # type: ignore[arg-type] # has all that a judge uses

    def solving() -> Attempt:
        return RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store, judge=judge).attempts(1)[0]

    first = solving()
    (kept,) = store.root.glob("rollouts/*/scores-*-00001.json")
    whole = json.loads(kept.read_text())
    for number, damage in enumerate(
        (
            {"spent": {"tokens": "5"}},
            {"spent": {**whole["spent"], "cost_usd": float("nan")}},
            {"votes": "1"},
            {"votes": ["0.1"]},
            {"votes": [float("nan")]},
            {"votes": [10**400]},
            {"votes": [[]]},
        ),
        4,
    ):
        kept.write_text(json.dumps({**whole, **damage}))
        again = solving()
        assert (again.score, again.reward, model.asked) == (first.score, first.reward, number), damage
    kept.write_text(json.dumps(whole))
    (record,) = store.root.glob("rollouts/*/rollout.json")
    record.write_text("{}")
    solver.at = "elsewhere"
    assert (solving().tokens, model.asked) == (2 * first.tokens, 13), "votes on both trajectories were paid for"


def test_a_lost_submission_is_not_a_failed_attempt(proven: Proven, tmp_path: Path) -> None:
    solver = Told(lambda _: ExitReason.SUBMITTED)
    rollout = RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, Store(tmp_path / "s")).attempts(1)[
        0
    ]
    assert (rollout.resolved, rollout.reward, rollout.ending) == (None, None, "aborted")
    assert rollout.reason == Reason(ReasonCode.ATTEMPT_ABORTED, "what was handed in is gone")


def test_a_deleted_patch_without_a_grade_is_made_again(
    proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver, store = Fixing(proven.artifact.bug.reverse()), Store(tmp_path / "s")

    def solving() -> bool | None:
        return RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store).attempts(1)[0].resolved

    with monkeypatch.context() as patch:
        patch.setattr(
            "harness.rollouts.runner.grade_patch",
            lambda *_, **__: Grade("", None, Reason(ReasonCode.SANDBOX_FAILED, "the disk is full")),
        )
        assert solving() is None
        next(store.root.rglob("patch.diff")).unlink()
        assert (solving(), len(solver.asked)) == (None, 2)
        next(store.root.rglob("patch.diff")).write_bytes(b"diff --git")
    assert (solving(), len(solver.asked)) == (True, 3)


def _damaged(path: Path, *location: object) -> str:
    """Return a round's record with another value at a path in its first episode."""
    data = json.loads(path.read_text())
    *parents, name, value = location
    node = data["episodes"][0]
    for step in parents:
        node = node[step][0]
    node[name] = value
    return json.dumps(data)


@pytest.mark.long
def test_invalid_records_are_made_again(project: Path, proven: Proven, tmp_path: Path) -> None:
    solver, store, model = Told(name="whole"), Store(tmp_path / "s"), Failing(0)

    def played() -> list[Episode]:
        return selfplay(project, store, solver).play()

    def injected() -> object:
        injector = ModelInjector(model, "direct", RolloutLimits(format_errors=2))
        return replace(ModelCampaign(proven.runner, store, injector, seed=5).attempt(0), seconds=0)  # type: ignore[type-var]

    first, made = played(), injected()
    (record,) = store.root.glob("episodes/*/round-*.json")
    key, whole = selfplay(project, store, solver).key, record.read_text()
    assert read_round(store, key, 0, 0, attempts=2) is not None
    for damage in (
        "{}",
        '{"episodes": 5}',
        '{"episodes": [5, {"schema_version": 3}]}',
        ("lines", None),
        ("tokens", "5"),
        ("seconds", None),
        ("strategy", 5),
        ("rollouts", "resolved", "no"),
        ("rollouts", "resolved", 7),
        ("rollouts", "reward", "x"),
        ("rollouts", "attempt", 5),
        ("rollouts", "attempt", 1),
        ("rollouts", "reward", float("nan")),
        ("rollouts", "seconds", float("inf")),
        ("rollouts", "flags", "forged"),
        ("rollouts", "flags", [5]),
        ("cost_usd", 10**400),
    ):
        record.write_text(damage if isinstance(damage, str) else _damaged(record, *damage))
        assert read_round(store, key, 0, 0, attempts=2) is None, damage
        record.write_text(whole)
    record.write_text(_damaged(record, "lines", None))
    assert played() == first
    for pattern, text in (
        ("rollouts/*/rollout.json", '{"schema_version": 3}'),
        ("attempts/*/*.json", '{"schema_version": 2}'),
        ("baselines/*.json", '{"schema_version": 3}'),
        ("verdicts/*/*.json", '{"schema_version": 1}'),
    ):
        for path in [record, *store.root.glob(pattern)]:
            path.write_text(text)
        again = played()
        assert [e.artifact_id for e in again] == [e.artifact_id for e in first]
        assert [[r.resolved for r in e.rollouts] for e in again] == [[False, False]]
        assert injected() == made


@dataclass
class Slow(Told):
    """Takes a while, so that two runs overlap."""

    def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
        time.sleep(0.5)
        return super().solve(task, seed=seed, journal=journal)


def test_two_runs_on_one_store_run_an_attempt_once(proven: Proven, tmp_path: Path) -> None:
    solver, root = Slow(name="slow"), tmp_path / "s"

    def solving(_: int) -> list[Attempt]:
        return RolloutRunner(proven.runner.scoped(), proven.artifact, proven.verdict, solver, Store(root)).attempts(2)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(solving, range(2))
    assert first == second
    assert len(solver.asked) == 2
    assert [r.tokens for r in first] == [15, 15]
    assert not list(root.rglob("earlier-*"))


def test_two_runs_on_one_store_inject_a_bug_once(proven: Proven, tmp_path: Path) -> None:
    injector, root = ModelInjector(Failing(0, pause_s=0.3), "direct", RolloutLimits(format_errors=2)), tmp_path / "s"

    def injected(_: int) -> tuple[object, int]:
        campaign = ModelCampaign(proven.runner.scoped(), Store(root), injector, seed=5)
        return campaign.attempt(0), campaign.spent(0).tokens

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(injected, range(2))
    assert first == second
    assert first[1] == 220
    assert not list(root.rglob("earlier-*"))


def test_a_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from pytest_ssr.storage.store import Store\n"
    code += "with Store(Path(sys.argv[1])).alone('x'): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    begin, held = time.monotonic(), threading.Timer(0.5, other.kill)
    held.start()
    with Store(tmp_path / "s").alone("y"):
        pass
    with Store(tmp_path / "s").alone("x"):
        assert time.monotonic() - begin >= 0.5, "a killed process holds no lock"
    other.communicate()


class Failing:
    """A model whose server fails a number of times, and then replies that it is done."""

    name, samples, context_tokens = "failing", True, 100_000

    def __init__(self, times: int, *, pause_s: float = 0.0) -> None:
        self.left, self._pause_s = times, pause_s

    def reply(self, messages: Any, **_: Any) -> Reply:
        time.sleep(self._pause_s)
        if messages[-1].role == "user" and "no tool was called" in messages[-1].content:
            self.left -= 1
            if self.left >= 0:
                raise ModelError("the server is gone")
        return Reply(Message(ASSISTANT, "I am done"), "stop", Usage(100, 10))

    def count(self, messages: Any, **_: Any) -> int:
        return 1

    def session(self, rollout: str) -> Failing:
        return self

    def close(self) -> None:
        """Do nothing."""


def test_an_aborted_injection_is_repeated_with_the_same_seed(proven: Proven, tmp_path: Path) -> None:
    store, model = Store(tmp_path / "s"), Failing(4)
    injector = ModelInjector(model, "direct", RolloutLimits(format_errors=2))
    with pytest.raises(ModelError, match="failing: the server is gone"):
        ModelCampaign(proven.runner, store, injector, seed=5).attempt(0)
    campaign = ModelCampaign(proven.runner, store, injector, seed=5)
    attempt = campaign.attempt(0)
    assert attempt is not None
    assert attempt.reason is not None
    assert attempt.reason.code is CheckCode.NOTHING_SUBMITTED
    (folder,) = (store.root / "rollouts").iterdir()
    tries = [read_trajectory(p) for p in sorted(folder.iterdir())]
    assert [t.status for t in tries] == ["aborted"] * 4 + ["failed"]
    assert {t.provenance["seed"] for t in tries} == {5}
    assert campaign.spent(0).tokens == 110 * (4 + 2)
    again = ModelCampaign(proven.runner, store, injector, seed=5)
    assert again.attempt(0) == attempt
    assert again.spent(0) == campaign.spent(0)


def test_results_are_stored_by_the_identity_of_a_model_and_not_by_its_name(tmp_path: Path) -> None:
    one, other = (ScriptedModel("scripted:x", [Message(ASSISTANT, text)]) for text in "ab")
    assert ModelSolver(one).key != ModelSolver(other).key
    assert ModelInjector(one).key != ModelInjector(other).key
    roles = PlayerFactory(context_tokens=9000, _models={"scripted:x": one})
    smaller = roles.solver("scripted:x"), roles.injector("scripted:x", strategy="removal+history", rejections=2)
    assert getattr(smaller[0], "key", "") != ModelSolver(one).key, "a smaller window changes the prompts"
    assert smaller[1].key != ModelInjector(one).key
    with serving() as served:
        model = HttpModel("vllm:x", served.url)
        assert identity_of(model) == "vllm:x tiny"
        model.close()
    weights = tmp_path / "model" / "weights"
    weights.parent.mkdir()
    weights.write_bytes(bytes(20 << 20))
    before = hash_path(weights.parent)
    weights.write_bytes(b"".join([bytes(10 << 20), b"\1" * (10 << 20)]))
    assert hash_path(weights.parent) != before
    assert hash_path(tmp_path / "nowhere") == ""


def test_a_new_commit_changes_keys_that_depend_on_history(proven: Proven, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(proven.project, copy, ignore=shutil.ignore_patterns("__pycache__"))
    runner = proven.runner.scoped()
    runner = replace(runner, snapshot=replace(runner.snapshot, origin=copy))
    model = ScriptedModel("scripted:x", [])

    def keys() -> list[str]:
        return [ModelCampaign(runner, proven.store, ModelInjector(model, s), seed=0).key for s in ("history", "direct")]

    def without_model() -> list[str]:
        keys = []
        for injector in (
            Curriculum([HistoryInjector()], Table(2)),
            CombinationInjector([HistoryInjector()]),
            Ordered(),
        ):
            campaign = Campaign(runner, proven.store, [injector], seed=0)
            campaign.close()
            play = SelfPlay([Project(copy)], proven.store, Told(), PlaySettings(), injectors=[injector])
            keys += [campaign.key, play.key]
        return keys

    before, others_before = keys(), without_model()
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "second"], cwd=copy, check=True)
    after, others = keys(), without_model()
    assert before[0] != after[0]
    assert before[1] == after[1], "strategies without history are unchanged"
    assert [old != new for old, new in zip(others_before, others, strict=True)] == [True] * 4 + [False] * 2


def test_every_model_is_closed_on_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Held(ScriptedModel):
        def close(self) -> None:
            closed.append(self.name)
            if self.name == "a/2":
                raise ModelError("it does not close")

    monkeypatch.setattr("harness.rollouts.player_factory.open_model", lambda name, **_: Held(name, []))
    roles = PlayerFactory()
    roles.solver("a/1")
    roles.judge("a/2", votes=1, coefficient=1.0)
    roles.injector("a/1", strategy="direct", rejections=0)
    with pytest.raises(ModelError, match="it does not close"), roles:
        raise KeyboardInterrupt
    assert sorted(closed) == ["a/1", "a/2"]


def test_a_starting_server_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "vllm"
    program.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("SSR_VLLM", str(program))
    model = VllmModel("some/model")
    faults: list[ModelError] = []

    def ask() -> None:
        try:
            _ = model.context_tokens
        except ModelError as error:
            faults.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    model.close()
    asking.join(60)
    assert not asking.is_alive()
    assert len(faults) == 1
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_the_report_counts_the_usage_of_both_roles() -> None:
    reason = Reason(ReasonCode.RESOLVED)
    rollout = Attempt("a", "m", reason, resolved=True, tests=True, reward=1.0, tokens=100, cost_usd=0.5, unpriced=1)
    made = Episode(
        "p", "a", 1, 1, "", "direct", "m", "x.py", "f", 3, 2, True, None, tokens=40, cost_usd=0.25, unpriced=2
    )
    bad = replace(made, artifact_id="", valid=False, check="bug-scope", reason=CheckReason(CheckCode.NOTHING_CHANGED))
    ungraded = replace(rollout, resolved=None, tests=None, reward=None)
    episodes = [replace(made, rollouts=(rollout, ungraded)), bad]
    summary = tables(episodes, alpha=0.8, kind="solve-rate")
    (total,) = summary["all"]
    assert (total["tokens"], total["cost_usd"], total["unpriced_calls"]) == (280, 1.5, 6)
    assert (total["tried"], total["valid"], total["attempts"], total["ungraded"]) == (2, 1, 1, 1)
    assert total["validity"] == {
        "rate": 0.5,
        "low": pytest.approx(0.0945, abs=1e-4),
        "high": pytest.approx(0.9055, abs=1e-4),
    }
    text = "\n".join(line for _, line in lines(summary, episodes, attempts=2, alpha=0.8, kind="solve-rate"))
    assert "280 tokens, 1.5000 USD, and 6 calls without a known price" in text
    assert "not valid by: bug-scope 1" in text
    assert "attempts without a grade, because of faults of the machine or of a model's server: 1" in text
    assert "run the same command to complete only the missing attempts" in text
    heading, row = text.splitlines()[:2]
    assert row[: heading.index("no grade") + 8].endswith(" 1")
    whole = tables(episodes[1:], alpha=0.8, kind="solve-rate")
    assert "not finished" not in "\n".join(
        line for _, line in lines(whole, episodes[1:], attempts=2, alpha=0.8, kind="x")
    )
