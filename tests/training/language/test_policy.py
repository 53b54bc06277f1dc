"""Training in our environments: a tiny model whose tokens are actions learns to repair a bug, by real grades."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from action_model import make_action_model
from language_runs import lines, report
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT

from harness.cli.exit_code import ExitCode
from harness.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
LOOK = "```bash\ncat calc.py\n```\n"


@pytest.fixture(scope="session")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model with four actions."""
    return make_action_model(tmp_path_factory.mktemp("actor"), (FIX, NO_FIX, LOOK, SUBMIT))


def argv(method: str, proven: Proven, actor: Path, out: Path, *options: str) -> list[str]:
    return [
        *("train", method, str(proven.project), "--store", str(proven.store.root), "--model", str(actor)),
        *("--out", str(out), "--python", str(plain_python()), "--roles", "solver", "--group", "8", "--tasks", "1"),
        *("--batch", "8", "--steps", "2", "--reply-tokens", "2", "--completion-tokens", "2000", "--adapter", "none"),
        *("--schedule", "constant", "--warmup", "0", "--checkpoint-every", "5", *options),
    ]


@pytest.mark.parametrize(("method", "rate"), [("grpo", "0.001"), ("reinforce", "0.001")])
def test_the_reward_rises_over_20_updates(method: str, rate: str, proven: Proven, actor: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(argv(method, proven, actor, out, "--updates", "20", "--learning-rate", rate)) == ExitCode.DONE
    rewards = [line["reward"] for line in lines(out)]
    rates = [line["solve_rate"] for line in lines(out)]
    print(method, rewards)
    assert len(rewards) == report(out)["updates"] == 20
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.4
    assert all(reward == pytest.approx(2 * rate - 1) for reward, rate in zip(rewards, rates, strict=True))
    sampled = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert len(sampled) == 2 * 20
    assert {line["code"] for line in sampled} >= {"resolved"}
    assert len(list(out.glob("trajectories/*/trajectory.jsonl"))) == 8 * 20


def test_a_killed_run_continues_with_the_same_rewards(proven: Proven, actor: Path, tmp_path: Path) -> None:
    options = ("--updates", "6", "--learning-rate", "0.001", "--checkpoint-every", "2", "--group", "4", "--batch", "4")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main(argv("grpo", proven, actor, whole, *options)) == ExitCode.DONE
    command = [sys.executable, "-m", "harness.cli", *argv("grpo", proven, actor, killed, *options)]
    with subprocess.Popen(command, start_new_session=True) as process:
        while process.poll() is None:
            metrics = killed / "metrics.jsonl"
            if metrics.exists() and len(metrics.read_text().splitlines()) >= 3:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.01)
    assert process.returncode == -signal.SIGKILL
    assert main(argv("grpo", proven, actor, killed, *options)) == ExitCode.DONE
    assert report(killed)["continued_after"] >= 2
    names = ("step", "reward", "loss", "grad_norm", "solve_rate")
    curves = [[[line[name] for name in names] for line in lines(run)] for run in (whole, killed)]
    assert curves[0] == curves[1]


def test_what_cannot_be_played_is_refused(
    proven: Proven, actor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        "no number of updates": (),
        "an odd number of tasks for two roles": ("--updates", "1", "--roles", "both"),
        "a batch that does not divide an update": ("--updates", "1", "--batch", "3"),
        "a group of one": ("--updates", "1", "--group", "1"),
        "an evaluation set": ("--updates", "1", "--exclude", f"owner/{proven.project.name}"),
        "a file that does not exist": ("--updates", "1", "--exclude", "absent.jsonl"),
    }
    for name, options in cases.items():
        assert main(argv("grpo", proven, actor, tmp_path / "out", *options)) == ExitCode.USAGE, name
        error = capsys.readouterr().err
        assert error.startswith("ssr: "), name
        assert error.count("\n") == 1, error
