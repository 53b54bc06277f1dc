"""What one update plays, rewards and counts: with scripted episodes, and without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.commands.train_language import _equal, _lost
from harness.environments import EnvironmentSettings, ProjectTasks, StoreTasks
from harness.environments.adapters import trl as trl_adapter
from harness.environments.task import Outcome
from harness.records.trajectory import ExitReason
from harness.training.language import policy_rollouts, update_counts
from harness.training.language.plan import Policy
from harness.training.language.policy_rollouts import (
    PolicyEnvironment,
    PolicyRollouts,
    PolicyTask,
    Update,
    policy_reward,
)
from harness.training.language.run_folder import RunFolder
from harness.training.language.update_counts import UpdateCounts, equal_updates, total
from pytest_ssr.errors import ContextError, SandboxError, SettingsError

GROUP, EOS = 2, 9
SOLVED, FAILED = Outcome(1.0, True, "resolved", ""), Outcome(-1.0, False, "tests-fail", "")
VALID, INVALID = Outcome(1.0, True, "valid", "", {"artifact": "new"}), Outcome(-1.0, False, "no-bug", "")
BROKEN = Outcome(None, None, "sandbox-failed", "the sandbox is gone")


class Scripted:
    """Episodes of scripted outcomes, each after one reply; without an outcome they go on until they are stopped."""

    script: Callable[[str], Outcome | None]

    def __init__(self, source: Any, settings: EnvironmentSettings) -> None:
        self.role = source.role
        self.current: Any = None
        self.stopped: ExitReason | None = None

    def has(self, task: str) -> bool:
        return True

    def begin(self, *, seed: int, task: str) -> None:
        self.current = SimpleNamespace(system="", prompt="", outcome=None)

    def write(self, text: str) -> Any:
        return self._turn(type(self).script(self.role))

    def stop(self, detail: str, reason: ExitReason) -> Any:
        self.stopped = reason
        return self._turn(FAILED)

    def _turn(self, outcome: Outcome | None) -> Any:
        self.current.outcome = outcome
        return SimpleNamespace(output="", outcome=outcome, reward=outcome.reward if outcome is not None else 0.0)

    def close(self) -> None:
        """Close nothing."""


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the episodes, and the chat template: a prompt has 10 tokens, an observation 3."""
    monkeypatch.setattr(policy_rollouts, "open_episodes", Scripted)
    for module in (policy_rollouts, trl_adapter):
        monkeypatch.setattr(module, "together", lambda work, items: [work(item) for item in items])
    chat = SimpleNamespace(
        encode=lambda messages, ask: [0] * 10,
        end_of=lambda ids: [] if ids[-1:] == [EOS] else [EOS],
        between=lambda output: [7] * 3,
    )
    monkeypatch.setattr(trl_adapter, "_chat", lambda trainer: chat)


def script(*outcomes: Outcome | None, solver: Outcome = SOLVED) -> None:
    """Set the outcomes of injectors in their order, and that of all solvers."""
    left = list(outcomes)
    Scripted.script = staticmethod(lambda role: left.pop(0) if role == "injector" else solver)  # type: ignore[method-assign, assignment]


def trainer(*reply: int) -> Any:
    """Return what stands for a trainer whose model writes these tokens, otherwise two without an end."""
    return SimpleNamespace(
        state=SimpleNamespace(global_step=0),
        args=SimpleNamespace(max_completion_length=100),
        accelerator=SimpleNamespace(process_index=0, num_processes=1),
        processing_class=SimpleNamespace(decode=lambda ids, **options: "", eos_token_id=EOS),
        eos_token_ids=[EOS],
        _generate_single_turn=lambda prompts, *rest: ([list(reply or (1, 2)) for _ in prompts], None),
    )


def rollouts_of(tmp_path: Path, **options: Any) -> PolicyRollouts:
    """Return the rollouts of two projects without bugs."""
    solver: Any = {name: StoreTasks(tmp_path / name) for name in ("p", "q")}
    injector = {name: ProjectTasks([tmp_path / name]) for name in ("p", "q")}
    environment = PolicyEnvironment(solver, injector, EnvironmentSettings(), alpha=0.8)
    return PolicyRollouts(environment, RunFolder(tmp_path), group=GROUP, seed=0, samples=1, **options)


def prompts(*projects: str) -> list[Any]:
    """Return the prompts of a group of injectors and one of solvers in each project."""
    roles = [(role, project) for project in projects for role in ("injector", "solver")]
    return [PolicyTask(*task).row()["prompt"] for task in roles for _ in range(GROUP)]


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(("group", "tasks"), [(8, 8), (8, 4)])
def test_a_process_without_injectors_or_with_half_a_group_is_refused(group: int, tasks: int) -> None:
    with pytest.raises(SettingsError) as raised:
        Policy("both", group, tasks).batches(1, 8)
    assert raised.value.option == "tasks"
    assert Policy("both", group, 16).batches(1, 8) == 2 * group
    assert Policy("solver", group, tasks).batches(1, 8) == group * tasks // 8


def test_processes_draw_stored_bugs_and_seeds_by_the_index_among_all_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = rollouts_of(tmp_path)
    monkeypatch.setattr(rollouts, "_bugs", lambda project: [f"bug-{number}" for number in range(1000)])
    tasks = [PolicyTask("injector", "p")] * GROUP + [PolicyTask("solver", "p")] * GROUP
    processes = [Update(3, offset=len(tasks) * rank) for rank in range(4)]
    drawn = [{task.bug for task in rollouts._with_bugs(tasks, {}, update)[GROUP:]} for update in processes]
    assert [len(bugs) for bugs in drawn] == [1] * 4
    assert len(set.union(*drawn)) == 4
    together = rollouts._with_bugs(tasks * 4, {}, Update(3))
    assert [{task.bug} for task in together[GROUP :: 2 * GROUP]] == drawn
    assert len({update.seed(0, index) for update in processes for index in range(len(tasks))}) == 4 * len(tasks)


def test_the_offset_is_that_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(VALID, INVALID)
    seen: list[Update] = []
    monkeypatch.setattr(
        PolicyRollouts,
        "_with_bugs",
        lambda self, tasks, injected, update: (
            seen.append(update) or [PolicyTask(task.role, task.project, "new") for task in tasks]
        ),
    )
    process = trainer()
    process.accelerator.process_index = 3
    rollouts_of(tmp_path)(prompts("p"), process)
    assert seen == [Update(0, 3 * 2 * GROUP)]


def test_solvers_of_a_project_without_bugs_inject_until_it_has_one(tmp_path: Path) -> None:
    # In p the second injector finds a bug; in q none of the first two does, and the group of solvers injects, too.
    script(INVALID, VALID, INVALID, INVALID, INVALID, Outcome(1.0, True, "valid", "", {"artifact": "late"}))
    columns = rollouts_of(tmp_path)(prompts("p", "q"), trainer())
    assert columns["role"] == ["injector"] * 2 + ["solver"] * 2 + ["injector"] * 4
    assert columns["success"] == [False, True, True, True, False, False, False, True]
    # The bug in p is solved always, those in q are as good as any valid one.
    assert columns["given"] == [-1.0, pytest.approx(-0.8), 1.0, 1.0, -1.0, -1.0, -1.0, 1.0]
    [sampled] = lines(tmp_path / "rollouts.jsonl")
    assert sampled["role"] == "injector"


def test_other_scores_stay_when_solvers_decide_the_outcome(tmp_path: Path) -> None:
    rollouts = rollouts_of(tmp_path)
    played: Any = SimpleNamespace(reward=2 * 1.0 + 0.25, outcome=VALID)
    for scores, expected in (({"outcome": 2.0, "process": 0.5}, 2 * -0.8 + 0.25), ({"process": 0.5}, 2.25)):
        settings = EnvironmentSettings(scores=scores)
        rollouts._environment = PolicyEnvironment({}, {}, settings, alpha=0.8)
        assert rollouts._reward_by_solvers(played, [True, True]) == pytest.approx(expected)
    assert rollouts._reward_by_solvers(played, []) is None


def test_rollouts_without_a_reward_are_counted(tmp_path: Path) -> None:
    # A sandbox fails, and of two bugs in p one is tried.
    script(BROKEN, VALID)
    rollouts = rollouts_of(tmp_path)
    first = rollouts(prompts("p"), trainer())
    script(VALID, Outcome(1.0, True, "valid", "", {"artifact": "untried"}))
    rollouts(prompts("p"), trainer())
    assert first["given"].count(None) == 1
    logged: dict[str, float] = {}
    policy_reward(**first, log_metric=logged.__setitem__)
    assert (logged["without_reward"], logged["context_full"]) == (0.25, 0.0)
    counts = total(RunFolder(tmp_path))
    assert counts == UpdateCounts(played=8, failed=1, untried=1)
    assert counts.to_json()["without_reward"] == 2
    assert [line["without_reward"] for line in lines(tmp_path / "counts.jsonl")] == [1, 1]
    assert len(list(_lost(counts.to_json()))) == 2


def test_updates_with_equal_rewards_are_counted_and_named(tmp_path: Path) -> None:
    folder, rollouts = RunFolder(tmp_path), rollouts_of(tmp_path)
    for outcomes in ((INVALID, INVALID, INVALID, INVALID), (INVALID, VALID), (BROKEN, INVALID, INVALID, INVALID)):
        script(*outcomes, solver=FAILED)
        rollouts(prompts("p"), trainer())
    assert [line["unequal_groups"] for line in lines(tmp_path / "counts.jsonl")] == [0, 1, 0]
    assert equal_updates(folder) == 2
    [line] = _equal({"equal_updates": 2, "updates": 3})
    assert line.startswith("2 of 3 updates ")
    assert not list(_equal({"equal_updates": 0, "updates": 3}))
    folder.append(folder.counts, [{"played": 3, "failed": 1}])
    assert equal_updates(folder) == 2


def test_an_update_ends_the_run_only_if_no_process_has_a_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(BROKEN, BROKEN, VALID, VALID, solver=BROKEN)
    rollouts = rollouts_of(tmp_path)
    monkeypatch.setattr(rollouts, "_bugs", lambda project: ["old"])
    with pytest.raises(SandboxError):
        rollouts(prompts("p"), trainer())
    script(BROKEN, BROKEN, solver=BROKEN)
    monkeypatch.setattr(update_counts, "of_all_processes", lambda own, trainer: [own, (4, 0, 0, 1, 0, 0)])
    assert rollouts(prompts("p"), trainer())["given"] == [None] * 4
    assert total(RunFolder(tmp_path)) == UpdateCounts(played=8, failed=4, context_full=1)


def test_a_rollout_ends_before_a_reply_would_not_fit_into_the_context(tmp_path: Path) -> None:
    script(*[None] * 8)
    rollouts = rollouts_of(tmp_path, context=10 + 2 + 3 + 2 + 1, reply_tokens=2)
    columns = rollouts(prompts("p"), trainer(1, EOS))
    # A reply, an observation and another reply fit. Behind them is room for one token, but not for a reply.
    ids = columns["completion_ids"]
    assert ids is not None
    assert ids == [[1, EOS, 7, 7, 7, 1, EOS]] * 4
    assert columns["full"] == [ExitReason.CONTEXT] * 4
    pool: Any = rollouts._pools["injector", "p"]
    assert [episodes.stopped for episodes in pool] == [ExitReason.CONTEXT] * 4
    assert total(RunFolder(tmp_path)) == UpdateCounts(played=4, context_full=4)


def test_a_reply_that_was_cut_is_closed_and_counted(tmp_path: Path) -> None:
    script(*[None] * 8)
    process = trainer()
    process.args.max_completion_length = 2 + 1 + 3 + 2 + 1 + 2
    columns = rollouts_of(tmp_path, reply_tokens=2)(prompts("p"), process)
    # The second observation has one token more than there is room for.
    assert columns["completion_ids"] == [[1, 2, EOS, 7, 7, 7, 1, 2, EOS, 7, 7]] * 4
    assert columns["env_mask"] == [[1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]] * 4
    counts = total(RunFolder(tmp_path))
    assert counts == UpdateCounts(played=4, completion_full=4, cut=4)
    assert len(list(_lost(counts.to_json()))) == 2
    logged: dict[str, float] = {}
    policy_reward(**columns, log_metric=logged.__setitem__)
    assert (logged["completion_full"], logged["cut"], logged["context_full"]) == (1.0, 1.0, 0.0)


def test_a_completion_may_end_with_a_whole_reply(tmp_path: Path) -> None:
    script(*[None] * 8)
    process = trainer(1, EOS)
    process.args.max_completion_length = 2 + 3 + 1
    columns = rollouts_of(tmp_path, reply_tokens=2)(prompts("p"), process)
    assert columns["completion_ids"] == [[1, EOS, 7, 7, 7, 1]] * 4
    assert columns["full"] == [ExitReason.TOKEN_LIMIT] * 4
    assert total(RunFolder(tmp_path)) == UpdateCounts(played=4, completion_full=4, cut=4)


def test_counts_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(folder.counts, [{"played": 3, "failed": 1, "untried": 0, "context_full": 2}])
    assert total(folder) == UpdateCounts(played=3, failed=1, context_full=2)


def test_a_prompt_leaves_room_for_a_reply(tmp_path: Path) -> None:
    rollouts = rollouts_of(tmp_path, context=11, reply_tokens=2)
    with pytest.raises(SettingsError):
        rollouts(prompts("p"), trainer())
    [error] = rollouts._unusable.values()
    assert isinstance(error, ContextError)
