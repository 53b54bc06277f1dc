"""The Gymnasium environments: the interface, the rewards, and bad input."""

from __future__ import annotations

import base64
import functools
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv
from plain import plain_python
from proven import Proven
from rows import write_project, written

from harness.agents.limits import RolloutLimits
from harness.datasets.loading import Selection
from harness.environments import DatasetTasks, EnvironmentSettings, JoinedTasks, ProjectTasks, StoreTasks
from harness.environments.gym import InjectEnv, SolveEnv
from harness.records.rewards import injector_reward
from harness.records.trajectory import REWARDS, ExitReason, read_trajectory
from harness.records.usage import NAME
from harness.rollouts import runner as runner_module
from harness.rollouts.runner import RolloutRunner
from pytest_ssr.errors import ActionError, SandboxError, SandboxUnavailableError, SettingsError
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.sandbox.fake import FakeSandbox

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]
FIX = "sed -i 's/return a - b/return a + b/' calc.py"
SUBMIT = {"tool": "submit", "arguments": {}}


@pytest.fixture
def tasks(proven: Proven) -> StoreTasks:
    # Other processes do not inherit the tests' default interpreter.
    return StoreTasks(proven.project, proven.store.root, sandbox="bubblewrap", python=plain_python())


@pytest.fixture
def env(tasks: StoreTasks) -> Iterator[SolveEnv]:
    env = SolveEnv(tasks, EnvironmentSettings(limits=RolloutLimits(command_s=20)))
    yield env
    env.close()


def test_a_repair_is_resolved_and_rewarded(env: SolveEnv, proven: Proven) -> None:
    observation, info = env.reset(seed=1)
    assert observation in env.observation_space
    assert info["task"] == proven.verdict.artifact_id
    assert [tool["function"]["name"] for tool in info["tools"]] == ["bash", "editor", "submit"]
    assert "test_add" in observation["output"]
    assert observation["diff"] == ""

    observation, reward, terminated, truncated, info = env.step(FIX)
    assert observation in env.observation_space
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "+    return a + b" in observation["diff"]
    assert observation["steps_left"][0] == RolloutLimits().steps - 1
    assert 0 < observation["seconds_left"][0] <= RolloutLimits().wall_s
    assert info["exit_code"] == 0

    observation, reward, terminated, truncated, info = env.step(SUBMIT)
    assert observation in env.observation_space
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["success"], info["graded"], info["code"]) == (True, True, ReasonCode.RESOLVED)
    assert info["exit_reason"] == ExitReason.SUBMITTED
    assert "+    return a + b" in info["patch"]
    with pytest.raises(ActionError):
        env.step("ls")


def test_what_is_no_repair_is_unresolved(env: SolveEnv) -> None:
    env.reset()
    env.step("echo '# better' >> calc.py; echo 'def test_add(): pass' >> tests/test_calc.py")
    _, reward, terminated, _, info = env.step(SUBMIT)
    assert (reward, terminated, info["success"]) == (-1.0, True, False)
    observation, _ = env.reset()
    assert observation["diff"] == ""
    assert "return a - b" in env.step("cat calc.py")[0]["output"]


def test_gymnasium_s_checker_passes(tasks: StoreTasks) -> None:
    env = gymnasium.make("ssr/Solve-v0", tasks=tasks)
    check_env(env.unwrapped)


def step(env: gymnasium.Env[Any, Any], *actions: Any) -> tuple[Any, ...]:
    """Take several steps and return the result of the last one."""
    for action in actions:
        result = env.step(action)
    return result


def test_environments_run_in_processes(tasks: StoreTasks) -> None:
    make = functools.partial(gymnasium.make, "ssr/Solve-v0", tasks=tasks)
    with_vector = AsyncVectorEnv([make, make], context="spawn")
    try:
        observations, infos = with_vector.reset(seed=[1, 2])
        assert [len(set(observations[name])) for name in ("output", "diff")] == [1, 1]
        assert infos["task"][0] == infos["task"][1]
        assert "test_add" in observations["output"][0]
        observations, *_ = with_vector.step((FIX, "echo 'é → \U0001f40d'"))
        assert "+    return a + b" in observations["diff"][0]
        assert observations["diff"][1] == ""
        assert observations["output"][1].startswith("é → \U0001f40d\n")
        _, rewards, terminated, truncated, _ = with_vector.step((SUBMIT, {"tool": "editor", "arguments": {}}))
        assert rewards.tolist() == [1.0, 0.0]
        assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    finally:
        with_vector.close()


def one_row(folder: Path) -> tuple[DatasetTasks, Mapping[str, Any]]:
    """Return a dataset of one row, and the row."""
    clones, rows = write_project(folder)
    dataset = DatasetTasks(
        dataset=str(written(folder / "rows.jsonl", rows)),
        store=folder / "store",
        repos=clones,
        selection=Selection(only="shop-1"),
        sandbox="bubblewrap",
        python=plain_python(),
    )
    return dataset, rows[0]


def test_a_row_of_a_dataset_is_a_task(tmp_path: Path) -> None:
    dataset, row = one_row(tmp_path)
    env = SolveEnv(dataset)
    for command, expected in (("echo '# better' >> shop.py", -1.0), (FIX.replace("calc.py", "shop.py"), 1.0)):
        observation, info = env.reset()
        assert info["task"] == row["instance_id"]
        assert row["problem_statement"] in observation["output"]
        env.step(command)
        _, reward, terminated, _, info = env.step(SUBMIT)
        assert (reward, terminated, info["graded"]) == (expected, True, True)
    env.close()


def test_tasks_of_several_sources_are_joined(tasks: StoreTasks, tmp_path: Path) -> None:
    dataset, row = one_row(tmp_path)
    env = SolveEnv(JoinedTasks([tasks, dataset]), EnvironmentSettings(order="in-order"))
    # The first task is closed by the second, and opened again.
    for file in ("calc.py", "shop.py", "calc.py"):
        _, info = env.reset()
        assert (info["task"] == row["instance_id"]) == (file == "shop.py")
        assert "return a - b" in env.step(f"cat {file}")[0]["output"]
        env.step(FIX.replace("calc.py", file))
        assert env.step(SUBMIT)[1] == 1.0
    env.close()
    for sources in ([], [tasks, ProjectTasks([tasks.project])]):
        with pytest.raises(SettingsError):
            JoinedTasks(sources)
    with pytest.raises(SettingsError):
        JoinedTasks([tasks, tasks]).open()


def test_limits_truncate_and_the_changes_are_graded(tasks: StoreTasks) -> None:
    for grade_unsubmitted, expected in ((True, 1.0), (False, -1.0)):
        limited = SolveEnv(
            replace(tasks, grade_unsubmitted=grade_unsubmitted), EnvironmentSettings(limits=RolloutLimits(steps=1))
        )
        limited.reset()
        observation, reward, terminated, truncated, info = limited.step(FIX)
        limited.close()
        assert (reward, terminated, truncated) == (expected, False, True)
        assert info["exit_reason"] == ExitReason.STEP_LIMIT
        assert observation["steps_left"][0] == 0


def test_the_seconds_between_steps_do_not_count(env: SolveEnv) -> None:
    env.reset()
    episode = env._episodes.current
    now = [0.0]
    episode._clock = episode._turns._clock = lambda: now[0]
    episode._turns._begin, episode._idle_since = 0.0, 0.0
    now[0] = 1000.0
    observation, *_ = env.step("true")
    assert observation["seconds_left"][0] == RolloutLimits().wall_s


@pytest.mark.parametrize(
    ("command", "limit"),
    [("sleep 1000", "wall time"), ("yes", "output"), (":(){ :|:& };:; wait; sleep 60", "")],
    ids=["endless", "flood", "fork-bomb"],
)
def test_hostile_commands_end_and_the_episode_goes_on(tasks: StoreTasks, command: str, limit: str) -> None:
    env = SolveEnv(tasks, EnvironmentSettings(limits=RolloutLimits(command_s=3)))
    env.reset()
    observation, reward, terminated, truncated, info = env.step(command)
    assert limit in info["limit"]
    assert len(observation["output"]) <= RolloutLimits().output_chars + 200
    assert observation in env.observation_space
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert step(env, FIX, SUBMIT)[1] == 1.0
    env.close()


@pytest.mark.parametrize(
    "action",
    [None, 3, b"ls", ["ls"], {"reply": 1}, {"reply": "ls", "more": 1}, {"tool": "bash"}, {"tool": 1, "arguments": {}}, {"tool": "bash", "arguments": "ls"},
     {"tool": "bash", "arguments": {"command": {1, 2}}}, {"tool": "bash", "arguments": {}, "more": 1}],
    ids=str,
)  # fmt: skip
def test_what_is_not_an_action_is_an_error_and_no_step(env: SolveEnv, action: Any) -> None:
    env.reset()
    assert action not in env.action_space
    with pytest.raises(ActionError):
        env.step(action)
    assert env.step("true")[0]["steps_left"][0] == RolloutLimits().steps - 1


@pytest.mark.parametrize(
    "action",
    ["a\0b", "\ud800", {"tool": "nothing", "arguments": {}}, {"tool": "bash", "arguments": {"command": 1}}],
    ids=["nul", "surrogate", "unknown-tool", "wrong-argument"],
)
def test_mistakes_of_the_agent_are_observations(env: SolveEnv, action: Any) -> None:
    env.reset()
    observation, reward, terminated, truncated, _ = env.step(action)
    assert observation["output"]
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert observation in env.observation_space


def test_invalid_calls_in_a_row_end_the_episode(env: SolveEnv) -> None:
    env.reset()
    call: Mapping[str, Any] = {"tool": "nothing", "arguments": {}}
    *_, info = result = step(env, *[call] * RolloutLimits().format_errors)
    assert result[1:4] == (-1.0, True, False)
    assert (info["exit_reason"], info["code"]) == (ExitReason.FORMAT, ReasonCode.NO_PATCH)


def test_a_reset_closes_the_episode_before(env: SolveEnv) -> None:
    env.reset()
    env.step(FIX)
    before = env._episodes.current
    observation, _ = env.reset()
    assert before.trajectory.exit_reason is ExitReason.INTERRUPTED
    assert (observation["diff"], observation["steps_left"][0]) == ("", RolloutLimits().steps)


def test_steps_outside_of_an_episode_are_errors_and_close_is_idempotent(tasks: StoreTasks) -> None:
    env = SolveEnv(tasks)
    with pytest.raises(ActionError):
        env.step("ls")
    env.reset()
    env.close()
    env.close()
    with pytest.raises(ActionError):
        env.step("ls")
    with pytest.raises(ActionError):
        env.reset()


def test_an_environment_is_usable_after_a_reset_that_failed(tasks: StoreTasks) -> None:
    with gymnasium.make("ssr/Solve-v0", tasks=tasks) as env:
        with pytest.raises(SettingsError):
            env.reset(options={"task": "missing"})
        env.reset(seed=1)
        for command in ("echo one", "echo two"):
            observation, *_ = env.step(command)
            assert observation["output"].startswith(command.removeprefix("echo "))


def test_bad_settings_are_errors(tasks: StoreTasks, tmp_path: Path, proven: Proven) -> None:
    for settings in (
        {"settings": EnvironmentSettings(scores={"beauty": 1.0})},
        {"settings": EnvironmentSettings(scores={"outcome": math.nan})},
        {"settings": EnvironmentSettings(scores={"process": 1.0})},
        {"settings": EnvironmentSettings(tools=["hammer"])},
        {"diff_chars": 0},
        {"render_mode": "human"},
        {"tasks": ProjectTasks([proven.project])},
        {"tasks": None},
    ):
        with pytest.raises(SettingsError):
            SolveEnv(**{"tasks": tasks, **settings})
    env = SolveEnv(tasks)
    for options in ({"task": "none"}, {"task": 3}, {"difficulty": 1}):
        with pytest.raises(SettingsError):
            env.reset(options=options)
    env.close()


def test_a_store_without_artifacts_and_a_missing_sandbox_are_errors(
    tasks: StoreTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[StoreTasks, type[Exception]]] = [
        (replace(tasks, store=tmp_path / "missing"), SettingsError),
        (replace(tasks, artifacts=["0123"]), SettingsError),
    ]
    (tmp_path / "empty").mkdir()
    cases.append((replace(tasks, store=tmp_path / "empty"), SettingsError))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    cases.append((replace(tasks, sandbox="apptainer"), SandboxUnavailableError))
    for source, expected in cases:
        env = SolveEnv(source)
        with pytest.raises(expected):
            env.reset()
        env.close()


def test_a_broken_sandbox_gives_no_reward(env: SolveEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env.reset()
    episode = env._episodes.current

    def fail(command: str) -> Any:
        raise SandboxError("it is gone")

    episode._turns._workspace.sandbox = FakeSandbox.__new__(FakeSandbox)
    monkeypatch.setattr(FakeSandbox, "exec", lambda *_, **__: fail(""), raising=False)
    monkeypatch.setattr(FakeSandbox, "remove", lambda *_, **__: fail(""), raising=False)
    monkeypatch.setattr(FakeSandbox, "scratch", "/scratch", raising=False)
    _, reward, terminated, truncated, info = env.step("ls")
    assert math.isnan(reward)
    assert (terminated, truncated, info["graded"], info["success"]) == (False, True, False, None)
    assert (info["code"], info["exit_reason"]) == (ReasonCode.ATTEMPT_ABORTED, ExitReason.INFRA)


def test_a_grade_that_a_broken_sandbox_prevents_truncates(env: SolveEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise SandboxError("it is gone")

    env.reset()
    env.step(FIX)
    monkeypatch.setattr(RolloutRunner, "grade", fail)
    _, reward, terminated, truncated, info = env.step(SUBMIT)
    assert math.isnan(reward)
    assert (terminated, truncated, info["graded"]) == (False, True, False)
    assert (info["code"], info["exit_reason"]) == (ReasonCode.SANDBOX_FAILED, ExitReason.SUBMITTED)


def test_replies_of_a_model_are_read(env: SolveEnv) -> None:
    env.reset()
    observation, *_, info = env.step("<plan>I look.</plan>\n<execute>cat calc.py</execute>")
    assert "return a - b" in observation["output"]
    assert info["exit_code"] == 0
    observation, *_ = env.step(f"I repair it.\n\n```bash\n{FIX}\n```\nThen I submit.")
    assert "+    return a + b" in observation["diff"]
    for text in ("<execute>touch a</execute><execute>touch b</execute>", "```python\nopen('a', 'w')\n```", "touch a"):
        observation, reward, terminated, truncated, info = env.step({"reply": text})
        assert "call one of the tools" in observation["output"]
        assert (reward, terminated, truncated, info["exit_code"]) == (0.0, False, False, None)
    observation, *_ = env.step("cat > a.md <<'END'\n```bash\ntouch b\n```\nEND\nls")
    assert observation["output"].split()[:2] == ["a.md", "calc.py"]
    assert env.step("```submit\n{}\n```")[1] == 1.0


def test_environments_of_the_same_tasks_share_grades(tasks: StoreTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    graded = []
    grade_patch = runner_module.grade_patch
    monkeypatch.setattr(
        runner_module, "grade_patch", lambda *args, **more: graded.append(args[2].data) or grade_patch(*args, **more)
    )
    for source, rewards, most in ((tasks, [1.0, 1.0], 1), (replace(tasks), [1.0], 2)):
        for reward in rewards:
            env = SolveEnv(source, EnvironmentSettings())
            env.reset()
            assert step(env, FIX, SUBMIT)[1] == reward
            env.close()
        assert len(graded) == most


def test_shaping_is_named_and_telescopes(tasks: StoreTasks) -> None:
    env = SolveEnv(replace(tasks, full_grades=True), EnvironmentSettings(scores={"outcome": 1.0, "tests": 0.5}))
    env.reset()
    rewards = [env.step(a)[1] for a in ("echo '# x' >> calc.py", FIX, "sed -i 's/a + b/a - b/' calc.py", FIX, SUBMIT)]
    assert rewards == [0.0, 0.5, -0.5, 0.5, 1.0]
    env.close()


def test_episodes_are_recorded(tasks: StoreTasks, tmp_path: Path) -> None:
    env = SolveEnv(tasks, EnvironmentSettings(record=tmp_path))
    _, info = env.reset()
    step(env, FIX, SUBMIT)
    env.close()
    done = read_trajectory(tmp_path / info["rollout"] / NAME)
    assert (done.exit_reason, done.task_id, done.role) == (ExitReason.SUBMITTED, info["task"], "solver")
    assert [m.role for m in done.messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert done.messages[1].content == info["prompt"]
    assert not any(call.trainable for call in done.calls)
    assert json.loads((tmp_path / info["rollout"] / REWARDS).read_text())["rewards"] == [0.0, 1.0]


@pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("apptainer", marks=pytest.mark.apptainer),
        pytest.param("gvisor", marks=pytest.mark.gvisor),
        "process",
    ],
)
def test_every_sandbox_works(tasks: StoreTasks, sandbox: str) -> None:
    env = SolveEnv(replace(tasks, sandbox=sandbox))
    env.reset()
    edit = {"command": "str_replace", "path": "calc.py", "old_str": "return a - b", "new_str": "return a + b"}
    assert step(env, {"tool": "editor", "arguments": edit}, SUBMIT)[1] == 1.0
    env.close()


def write_artifact(proven: Proven, prompt: str) -> str:
    """Return the command that writes a valid artifact into the folder that the prompt names."""
    folder = next(word.strip("`.,:") for word in prompt.split() if word.strip("`.,:").endswith("/artifact"))
    files = "\n".join(
        f"echo {base64.b64encode(data).decode()} | base64 -d > {folder}/{name}"
        for name, data in proven.artifact.contents().items()
    )
    return f"mkdir -p {folder}\n{files}"


@pytest.mark.long
def test_a_valid_bug_is_rewarded_and_stored(proven: Proven, tmp_path: Path) -> None:
    store = tmp_path / "store"
    projects = ProjectTasks([proven.project], store, sandbox="bubblewrap", python=plain_python())
    env = InjectEnv(projects)
    _, info = env.reset()
    assert info["task"] == str(proven.project)
    observation, *_ = env.step("sed -i 's/return a + b/return a - b/' calc.py")
    assert "-    return a + b" in observation["diff"]
    _, reward, terminated, _, info = step(env, write_artifact(proven, info["prompt"]), SUBMIT)
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["artifact"] == proven.verdict.artifact_id
    env.close()
    solve = SolveEnv(StoreTasks(proven.project, store, python=plain_python()))
    assert solve.reset()[1]["task"] == info["artifact"]
    assert step(solve, FIX, SUBMIT)[1] == 1.0
    solve.close()


@pytest.mark.long
def test_the_reward_of_a_bug_can_depend_on_its_solve_rate(proven: Proven, tmp_path: Path) -> None:
    projects = ProjectTasks([proven.project], tmp_path / "store", reward="solve-rate", attempts=2)
    env = InjectEnv(projects)
    _, info = env.reset()
    _, reward, _, _, info = step(env, write_artifact(proven, info["prompt"]), SUBMIT)
    assert info["solve_rate"] in (0.0, 0.5, 1.0)
    assert reward == injector_reward(True, info["solve_rate"])
    env.close()


def test_a_bug_that_is_not_valid_is_unrewarded(proven: Proven, tmp_path: Path) -> None:
    env = InjectEnv(ProjectTasks([proven.project], tmp_path / "store", rejections=1))
    env.reset()
    _, reward, terminated, *_ = env.step(SUBMIT)
    assert (reward, terminated) == (0.0, False)
    _, reward, terminated, _, info = env.step(SUBMIT)
    assert (reward, terminated, info["success"], info["code"]) == (-1.0, True, False, CheckCode.UNREADABLE)
    env.close()


def test_the_checker_passes_for_injection(proven: Proven, tmp_path: Path) -> None:
    env = gymnasium.make("ssr/Inject-v0", tasks=ProjectTasks([proven.project], tmp_path / "store"))
    check_env(env.unwrapped)
