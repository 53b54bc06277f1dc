"""Training in our environments: a tiny model whose tokens are actions learns to repair a bug, by real grades."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trl
from action_model import make_action_model
from language_runs import killed, lines, report, require_adapter
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from rows import write_project, written

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.environments import EnvironmentSettings
from harness.environments.solve_tasks import SolveWork
from harness.environments.task import Outcome
from harness.solvers.writer.prompt import reply
from harness.training.language.policy_rollouts import PolicyEnvironment, PolicyRollouts, PolicyTask, Update
from harness.training.language.run_folder import RunFolder

pytestmark = [pytest.mark.bubblewrap, pytest.mark.filterwarnings("ignore")]  # From third-party packages.
SCRATCH = "/scratch"
LOOK = "```bash\ncat calc.py\n```\n"


@pytest.fixture(scope="session")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model with four actions."""
    return make_action_model(tmp_path_factory.mktemp("actor"), (FIX, NO_FIX, LOOK, SUBMIT))


def argv(method: str, proven: Proven, actor: Path, out: Path, *options: str) -> list[str]:
    return [
        *("train", method, str(proven.project), "--store", str(proven.store.root), "--model", str(actor)),
        *(
            "--out",
            str(out),
            "--python",
            str(plain_python()),
            "--sandbox",
            "bubblewrap",
            "--roles",
            "solver",
            "--group",
            "8",
            "--tasks",
            "1",
        ),
        *("--batch", "8", "--steps", "2", "--reply-tokens", "2", "--completion-tokens", "2000", "--adapter", "none"),
        *("--schedule", "constant", "--warmup", "0", "--checkpoint-every", "5", *options),
    ]


@pytest.mark.parametrize(("method", "rate"), [("grpo", "0.002"), ("reinforce", "0.002")])
def test_the_reward_rises_over_24_updates(method: str, rate: str, proven: Proven, actor: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(argv(method, proven, actor, out, "--updates", "24", "--learning-rate", rate)) == ExitCode.DONE
    rewards = [line["reward"] for line in lines(out)]
    rates = [line["solve_rate"] for line in lines(out)]
    assert len(rewards) == report(out)["updates"] == 24
    assert sum(rewards[-8:]) / 8 > sum(rewards[:8]) / 8 + 0.3
    assert all(reward == pytest.approx(2 * rate - 1) for reward, rate in zip(rewards, rates, strict=True))
    sampled = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert len(sampled) == 2 * 24
    assert (out / "report.png").stat().st_size > 1000
    assert {line["code"] for line in sampled} >= {"resolved"}
    assert len(list(out.glob("trajectories/*/trajectory.jsonl"))) == 8 * 24


def test_the_lines_of_a_place_are_learned_from_grades(proven: Proven, tmp_path: Path) -> None:
    model = make_action_model(
        tmp_path / "model", (reply("    return a + b\n"), reply("    return a * b\n"), "no lines")
    )
    out = tmp_path / "run"
    options = ("--form", "lines", "--updates", "16", "--learning-rate", "0.002")
    assert main(argv("grpo", proven, model, out, *options)) == ExitCode.DONE
    rates = [line["solve_rate"] for line in lines(out)]
    assert sum(rates[-4:]) > sum(rates[:4])
    sampled = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert {line["code"] for line in sampled} >= {"resolved"}
    # A run with actions is another one.
    assert main(argv("grpo", proven, model, out, *options[2:])) == ExitCode.USAGE


def test_the_form_of_lines_is_for_bugs_of_projects_to_repair(proven: Proven, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    options = ("--form", "lines", "--updates", "1", "--roles")
    assert main(argv("grpo", proven, tmp_path, tmp_path / "run", *options, "both", "--tasks", "2")) == ExitCode.USAGE
    rows = ["train", "grpo", str(tmp_path / "rows.jsonl"), "--model", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main([*rows, *options, "solver"]) == ExitCode.USAGE
    assert capsys.readouterr().err.count("--form") == 2


def test_both_roles_learn_from_one_batch(proven: Proven, tmp_path: Path) -> None:
    files = "\n".join(
        f"echo {base64.b64encode(data).decode()} | base64 -d > {SCRATCH}/artifact/{name}"
        for name, data in proven.artifact.contents().items()
    )
    inject = f"```bash\nmkdir -p {SCRATCH}/artifact\n{files}\n```\n"
    model = make_action_model(tmp_path / "model", (inject, FIX, SUBMIT))
    store = tmp_path / "store"
    shutil.copytree(proven.store.root, store)
    out = tmp_path / "run"
    options = ("--roles", "both", "--tasks", "2", "--updates", "3", "--learning-rate", "0.001", "--store", str(store))
    assert main(argv("grpo", proven, model, out, *options)) == ExitCode.DONE
    logged = lines(out)
    assert all({"reward/solver", "reward/injector", "solve_rate", "valid_rate"} <= line.keys() for line in logged)
    assert max(line["valid_rate"] for line in logged) > 0, "a bug of the policy itself is valid"
    assert all(line["grad_norm"] > 0 for line in logged)
    sampled = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert [line["role"] for line in sampled] == ["injector", "solver"] * 3
    assert {line["bug"] for line in sampled if line["role"] == "solver"} == {proven.verdict.artifact_id}


def test_the_reward_of_a_new_bug_is_by_the_solve_rate_of_its_solvers(proven: Proven, tmp_path: Path) -> None:
    environment = PolicyEnvironment({}, {}, EnvironmentSettings(), alpha=0.8)
    rollouts = PolicyRollouts(environment, RunFolder(tmp_path), group=4, seed=0, samples=0)
    injected = [played(1.0, True, artifact="new"), played(1.0, True, artifact="untried"), played(-1.0, False)]
    injected.append(played(None, None))
    tasks = [PolicyTask("injector", "p")] * 4 + [PolicyTask("solver", "p")] * 4
    tasks = rollouts._with_bugs(tasks, dict(enumerate(injected)), Update(0))
    assert {task.bug for task in tasks[4:]} == {"new"}
    solved = [played(1.0, True), played(-1.0, False), played(-1.0, False), played(-1.0, False)]
    rewards = rollouts._rewards(tasks, [*injected, *solved])
    assert rewards == [1 - 1.8 * 0.25, None, -1.0, None, 1.0, -1.0, -1.0, -1.0]


def test_rows_of_a_dataset_are_repaired(
    actor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clones, rows = write_project(tmp_path)
    dataset = written(tmp_path / "rows.jsonl", rows)
    model = make_action_model(tmp_path / "shopper", (FIX.replace("calc.py", "shop.py"), SUBMIT))
    common = ("train", "grpo", str(dataset), "--model", str(model), "--repos", str(clones), "--batch", "4")
    common = (*common, "--python", str(plain_python()), "--sandbox", "bubblewrap", "--group", "4", "--tasks", "1")
    common = (*common, "--steps", "2", "--reply-tokens", "2", "--completion-tokens", "2000", "--adapter", "none")
    common = (*common, "--updates", "1", "--only", "shop-1")
    out = tmp_path / "run"
    assert main([*common, "--out", str(out), "--roles", "solver"]) == ExitCode.DONE
    (sampled, *_) = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert sampled["bug"] == "acme__shop-1"
    assert 0 < lines(out)[0]["solve_rate"] <= 1
    capsys.readouterr()
    rows[0]["repo"] = "pallets/flask"
    written(dataset, rows)
    refused = {"roles": ("--roles", "both"), "evaluation set": ("--roles", "solver")}
    for name, options in refused.items():
        assert main([*common, "--out", str(tmp_path / name), *options]) == ExitCode.USAGE
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("all_bad", [False, True])
def test_a_row_that_cannot_be_used_is_skipped_unless_all_are(
    all_bad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clones, [good, bad] = write_project(tmp_path)
    bad["base_commit"] = "0" * 40
    if all_bad:
        good["base_commit"] = "0" * 40
    dataset = written(tmp_path / "rows.jsonl", [bad, good])
    model = make_action_model(tmp_path / "shopper", (FIX.replace("calc.py", "shop.py"), SUBMIT))
    out = tmp_path / "run"
    argv = [
        *("train", "grpo", str(dataset), "--model", str(model), "--repos", str(clones), "--out", str(out)),
        *("--python", str(plain_python()), "--sandbox", "bubblewrap", "--roles", "solver", "--adapter", "none"),
        *("--batch", "2", "--group", "2", "--tasks", "1", "--updates", "2", "--steps", "2", "--reply-tokens", "2"),
    ]
    code = main(argv)
    captured = capsys.readouterr()
    if all_bad:
        assert code != ExitCode.DONE
        assert captured.err.count("\n") == 1
        return
    assert code == ExitCode.DONE
    sampled = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert {line["bug"] for line in sampled} == {"acme__shop-1"}
    [left_out] = report(out)["left_out"]
    assert (left_out["code"], left_out["count"]) == ("unusable-task", 1)
    assert "acme__shop-2" in left_out["examples"][0]


def test_a_rollout_without_a_reward_is_counted_and_not_printed(
    proven: Proven,
    actor: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    graded, failed = SolveWork.outcome, []

    def outcome(self: SolveWork, done: Any) -> Outcome:
        if not failed:
            failed.append(done)
            return Outcome(None, None, "sandbox-failed", "the sandbox is gone")
        return graded(self, done)

    monkeypatch.setattr(SolveWork, "outcome", outcome)
    out = tmp_path / "run"
    assert main(argv("grpo", proven, actor, out, "--updates", "1", "--group", "4", "--batch", "4")) == ExitCode.DONE
    counts = report(out)["rollouts"]
    assert {name: counts[name] for name in ("played", "failed", "untried", "context_full", "completion_full")} == {
        "played": 4,
        "failed": 1,
        "untried": 0,
        "context_full": 0,
        "completion_full": 0,
    }
    assert counts["without_reward"] == 1
    [line] = lines(out)
    assert line["without_reward"] == 0.25
    captured = capsys.readouterr()
    # TRL would print the whole rollout.
    assert not [record for record in caplog.records if record.name == trl.GRPOTrainer.__module__]
    assert "1 of 4 rollouts" in captured.out + captured.err


def test_a_solver_needs_a_bug_before_a_model_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project, store = tmp_path / "project", tmp_path / "store"
    project.mkdir()
    for create in (False, True):
        if create:
            store.mkdir()
        command = ["train", "grpo", str(project), "--store", str(store), "--roles", "solver", "--updates", "1"]
        command += ["--model", str(tmp_path / "absent-model"), "--out", str(tmp_path / "run")]
        assert main(command) == ExitCode.USAGE
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert str(store) in error
        assert "absent-model" not in error


def played(reward: float | None, success: bool | None, **details: str) -> Any:
    return SimpleNamespace(reward=reward, outcome=Outcome(reward, success, "code", "text", details))


@pytest.mark.parametrize(("method", "adapter"), [("grpo", "none"), ("grpo", "lora"), ("reinforce", "lora")])
def test_a_killed_run_continues_with_the_same_rewards(
    method: str, adapter: str, proven: Proven, actor: Path, tmp_path: Path
) -> None:
    options = ("--updates", "6", "--learning-rate", "0.01", "--checkpoint-every", "2", "--group", "4", "--batch", "4")
    options = (*options, "--adapter", adapter, "--log-rollouts", "1")
    whole, out = tmp_path / "whole", tmp_path / "killed"
    assert main(argv(method, proven, actor, whole, *options)) == ExitCode.DONE
    killed(argv(method, proven, actor, out, *options), out, after=3)
    assert main(argv(method, proven, actor, out, *options)) == ExitCode.DONE
    assert report(out)["continued_after"] >= 2
    names = ("step", "reward", "loss", "grad_norm", "solve_rate", "num_tokens")
    curves = [[[line[name] for name in names] for line in lines(run)] for run in (whole, out)]
    assert curves[0] == curves[1]
    assert len((out / "rollouts.jsonl").read_text().splitlines()) == 6
    if adapter == "lora":
        require_adapter(actor, out / "model")


def test_what_cannot_be_played_is_refused(
    proven: Proven, actor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        "no number of updates": (),
        "an odd number of tasks for two roles": ("--updates", "1", "--roles", "both"),
        "a batch that does not divide an update": ("--updates", "1", "--batch", "3"),
        "a group of one": ("--updates", "1", "--group", "1"),
        "a context without room for a reply": ("--updates", "1", "--max-length", "2"),
        "an evaluation set": ("--updates", "1", "--exclude", f"owner/{proven.project.name}"),
        "a file that does not exist": ("--updates", "1", "--exclude", "absent.jsonl"),
    }
    for name, options in cases.items():
        assert main(argv("grpo", proven, actor, tmp_path / "out", *options)) == ExitCode.USAGE, name
        error = capsys.readouterr().err
        assert error.startswith("ssr: "), name
        assert error.count("\n") == 1, error
