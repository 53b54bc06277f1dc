"""`ssr eval` on a folder of `mini-extra swebench` grades its patches and adds data of its trajectories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rows import BASE, FIXED
from rows import diff as diff_of

from harness.solvers.mini.trajectory_reader import read_mini_trajectory
from pytest_ssr.errors import SettingsError

SHOP, OTHER = "acme__shop-1", "acme__shop-2"


def ssr(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    command = [sys.executable, "-m", "harness.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def diff(dataset, text: str) -> str:
    return diff_of(Path(dataset.common[1]) / "acme__shop", {"shop.py": text})


def call(command: str, n: int, cost: float = 0.25) -> dict[str, Any]:
    """Return an assistant's message in the format of version 2.4.6."""
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    response = {"id": f"r{n}", "choices": [{"finish_reason": "tool_calls", "message": message}], "usage": usage}
    actions = [{"command": command, "tool_call_id": f"c{n}"}]
    return {**message, "extra": {"actions": actions, "response": response, "cost": cost, "timestamp": 1.0}}


def observation(text: str, n: int, code: int = 0) -> dict[str, Any]:
    extra = {"raw_output": text, "returncode": code, "timestamp": 2.0, "exception_info": ""}
    return {"role": "tool", "content": f"<output>{text}</output>", "tool_call_id": f"c{n}", "extra": extra}


def exited(status: str, submission: str = "") -> dict[str, Any]:
    return {"role": "exit", "content": submission, "extra": {"exit_status": status, "submission": submission}}


def trajectory(iid: str, messages: list[dict[str, Any]], **info: Any) -> dict[str, Any]:
    head = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    calls = sum(m["role"] == "assistant" for m in messages)
    metadata = {"mini_version": "2.4.6", "model_stats": {"instance_cost": 0.25 * calls, "api_calls": calls}, **info}
    return {
        "info": metadata,
        "messages": head + messages,
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": iid,
    }


def write_prediction(folder: Path, iid: str, patch: str, messages: list[dict[str, Any]] | None, **info: Any) -> None:
    path = folder / "preds.json"
    predictions = json.loads(path.read_text()) if path.exists() else {}
    predictions[iid] = {"model_name_or_path": "openai/m", "instance_id": iid, "model_patch": patch}
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(predictions))
    if messages is not None:
        (folder / iid).mkdir()
        (folder / iid / f"{iid}.traj.json").write_text(json.dumps(trajectory(iid, messages, **info)))


@pytest.mark.long
def test_a_folder_is_graded_and_its_trajectories_are_copied(dataset, tmp_path: Path) -> None:
    good, folder, out = diff(dataset, FIXED), tmp_path / "mini", tmp_path / "out"
    done = [
        call("sed", 0),
        observation("ok", 0),
        call("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt", 1),
    ]
    write_prediction(folder, SHOP, good, [*done, exited("Submitted", good)], exit_status="Submitted", submission=good)
    limits = {"agent": {"step_limit": 1, "cost_limit": 3.0}}
    stopped = [call("ls", 0), observation("no", 0, 2), exited("LimitsExceeded")]
    write_prediction(folder, OTHER, "", stopped, exit_status="LimitsExceeded", config=limits)
    run = ssr("eval", dataset.path, "--predictions", folder, "--out", out, *dataset.common)
    assert run.returncode == 1, run.stdout + run.stderr
    first, second = results(out)
    fields = ("status", "exit_reason", "steps", "tokens", "cost_usd", "solver")
    assert [first[n] for n in fields] == ["resolved", "submitted", 2, 220, 0.5, "openai/m"]
    assert [second[n] for n in fields] == ["empty", "step_limit", 1, 110, 0.25, "openai/m"]
    logs = out / "logs" / "run_evaluation" / "ssr" / "openai__m"
    written_trajectory = json.loads((logs / SHOP / "traj.json").read_text())
    assert (written_trajectory["exit_reason"], written_trajectory["status"], written_trajectory["result"]["patch"]) == (
        "submitted",
        "completed",
        good,
    )
    assert [m["role"] for m in written_trajectory["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert (logs / SHOP / "patch.diff").read_text() == good
    assert json.loads((logs / OTHER / "traj.json").read_text())["exit_reason"] == "step_limit"
    for iid in (SHOP, OTHER):
        assert json.loads((logs / iid / f"{iid}.traj.json").read_text()) == json.loads(
            (folder / iid / f"{iid}.traj.json").read_text()
        )
    board = ssr("leaderboard", out, "--json")
    assert board.returncode == 0, board.stderr
    (solver,) = json.loads(board.stdout)["solvers"]
    assert (solver["solver"], solver["total_cost_usd"]) == ("openai/m", 0.75)
    again = ssr("eval", dataset.path, "--predictions", folder, "--out", out, *dataset.common)
    assert "2 of 2 are from an earlier run" in again.stdout
    assert results(out) == [first, second]


def test_predictions_alone_are_enough(dataset, tmp_path: Path) -> None:
    folder = tmp_path / "mini"
    wrong = diff(dataset, BASE["shop.py"].replace("a - b", "a ** b"))
    write_prediction(folder, SHOP, wrong, None)
    write_prediction(folder, "elsewhere__1", "", None)
    for source in (folder, folder / "preds.json"):
        out = tmp_path / f"out-{source.suffix}"
        run = ssr("eval", dataset.path, "--predictions", source, "--out", out, *dataset.common)
        assert run.returncode == 1, run.stdout + run.stderr
        (result,) = results(out)
        assert (result["status"], result["exit_reason"], result["cost_usd"]) == ("unresolved", "", 0.0)
        assert not list(out.glob("logs/**/*traj.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "is not a trajectory of mini-swe-agent: trajectory_format is None"),
        ('{"trajectory_format": "swe-agent"}', "trajectory_format is 'swe-agent'"),
        ('{"trajectory_format": "mini-swe-agent-1.1"}', "is not a complete trajectory of mini-swe-agent: 'messages'"),
        ('{"trajectory_format": "mini-swe-agent-1.1", "messages": [7]}', "is not a complete trajectory"),
        ('{"trajectory_format": "mini-swe-agent-1.1", "messages": [], "info": [1]}', "is not a complete trajectory"),
        (
            '{"trajectory_format": "mini-swe-agent-1.1", "messages": [{"role": "user", "extra": [1]}]}',
            "is not a complete",
        ),
        (
            '{"trajectory_format": "mini-swe-agent-1.1", "messages": [{"role": "assistant", "tool_calls": [3]}]}',
            "not a chat completion",
        ),
    ],
)
def test_a_damaged_trajectory_is_named(dataset, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.traj.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"x\.traj\.json") as caught:
        read_mini_trajectory(path, "m")
    assert message in str(caught.value)


def test_a_damaged_trajectory_is_a_usage_error(dataset, tmp_path: Path) -> None:
    folder = tmp_path / "mini"
    write_prediction(folder, SHOP, diff(dataset, FIXED), [])
    (folder / SHOP / f"{SHOP}.traj.json").write_text('{"info"')
    run = ssr("eval", dataset.path, "--predictions", folder, "--out", tmp_path / "out", *dataset.common)
    assert run.returncode == 2, run.stdout + run.stderr
    assert f"{SHOP}.traj.json cannot be read" in run.stderr
    assert "Traceback" not in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("status", "info", "reason"),
    [
        ("Submitted", {}, "submitted"),
        ("LimitsExceeded", {"config": {"agent": {"step_limit": 9}}}, "cost_limit"),
        ("LimitsExceeded", {"config": {"agent": {"step_limit": 1}}}, "step_limit"),
        ("TimeExceeded", {}, "time_limit"),
        ("RepeatedFormatError", {}, "format"),
        ("ContextWindowExceededError", {}, "context"),
        ("RateLimitError", {"exception_str": "slow\ndown"}, "model"),
        ("CalledProcessError", {}, "infra"),
        ("", {}, "interrupted"),
    ],
)
def test_each_exit_status_has_its_reason(tmp_path: Path, status: str, info: dict[str, Any], reason: str) -> None:
    path = tmp_path / "x.traj.json"
    path.write_text(json.dumps(trajectory("x", [call("ls", 0)], exit_status=status, **info)))
    recording = read_mini_trajectory(path, "m")
    assert str(recording.rollout.exit_reason) == reason
    assert recording.rollout.detail == (
        "RateLimitError: slow down" if reason == "model" else "" if reason == "submitted" else status
    )


def test_an_invalid_reply_counts(tmp_path: Path) -> None:
    reply = call("ls", 0)["extra"]["response"]
    wrong = {
        "role": "user",
        "content": "call a tool",
        "extra": {"interrupt_type": "FormatError", "response": reply, "cost": 0.25},
    }
    path = tmp_path / "x.traj.json"
    path.write_text(
        json.dumps(trajectory("x", [wrong, call("ls", 1), observation("a", 1), exited("RepeatedFormatError")]))
    )
    rollout = read_mini_trajectory(path, "m").rollout
    assert [c.cost_usd for c in rollout.calls] == [0.25, 0.25]
    assert [s.kind for s in rollout.steps] == ["format-error", "tool"]
    assert rollout.calls[1].sent == (0, 1, 3), "the invalid reply is not sent again"
