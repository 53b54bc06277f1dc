"""The pipe to mini-swe-agent's process, with programs instead of its driver that violate the protocol."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven

from harness.agents.limits import RolloutLimits
from harness.cli.main import main as ssr
from harness.records.attempt import Attempt
from harness.records.trajectory import Trajectory, read_trajectory
from harness.rollouts.runner import PATCH, ROLLOUTS, TRAJECTORY, RolloutRunner
from harness.solvers.mini import interpreter
from harness.solvers.mini.interpreter import VARIABLE, mini_python
from harness.solvers.mini.process import LateError, Process, environment_for
from harness.solvers.mini.solver import NATIVE, MiniSolver
from pytest_ssr.errors import ModelError, SettingsError
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

KEY = "sk-0123456789abcdefghijklmnopqrstuv"
_HEAD = """
import json, os, sys, time
out = int(sys.argv[1])
def say(**data):
    data = json.dumps(data).encode() + b"\\n"
    while data:
        data = data[os.write(out, data):]
def hear():
    return json.loads(sys.stdin.readline())
def message(role, content, **extra):
    call = {"tool_call_id": "c"} if role == "tool" else {}
    say(event="messages", messages=[{"role": role, "content": content, "extra": extra, **call}])
def run(command):
    say(event="query"); assert hear() == {}
    message("assistant", "I go on", actions=[{"command": command, "tool_call_id": "c"}], cost=0.5)
    say(event="execute", command=command)
    return hear()
def begin():
    hear()
    say(event="begin", data={"info": {"mini_version": "2.4.6"}, "trajectory_format": "mini-swe-agent-1.1"}, tools=[])
    message("system", "s"); message("user", "u")
def end(status, **more):
    message("exit", "", exit_status=status, **more)
    say(event="end", data={"info": {"exit_status": status}, "trajectory_format": "mini-swe-agent-1.1"})
"""


def solve(proven: Proven, folder: Path, program: str, **limits: float) -> tuple[Attempt, Trajectory, Path]:
    (folder / "driver.py").write_text(_HEAD + program)
    store = Store(folder / "store")
    solver = MiniSolver(
        "openai/m",
        Path(sys.executable),
        limits=RolloutLimits(**limits),
        driver=folder / "driver.py",  # type: ignore[arg-type]
    )
    (rollout,) = RolloutRunner(
        proven.runner, proven.artifact, proven.verdict, solver, store, grade_unsubmitted=True
    ).attempts(1)
    folder_of_rollout = store.root / ROLLOUTS / rollout.id
    return rollout, read_trajectory(folder_of_rollout / TRAJECTORY), folder_of_rollout


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print('no such model'); sys.exit(3)", "mini-swe-agent's process ended with status 3: no such model"),
        ("begin(); os.kill(os.getpid(), 9)", "mini-swe-agent's process ended with status -9: it printed nothing"),
        ("begin(); os.write(out, b'Traceback: \\xff\\n'); time.sleep(60)", "sent an invalid line: 'Traceback"),
        ("begin(); os.write(out, b'[' * 100000 + b'\\n'); time.sleep(60)", "sent an invalid line"),
        ("begin(); say(event='messages', messages=7)", "sent an invalid event: messages: 'int' object"),
        ("begin(); message('assistant', 'x', response={'choices': [7]})", "not a chat completion"),
        ("begin(); say(event='execute')", "sent an invalid event: execute: 'command'"),
        ("begin(); say(event='dance')", "sent the unknown event 'dance'"),
        ("hear(); say(event='end')", "sent 'end' instead of 'begin'"),
        ("begin(); say(event='end')", "mini-swe-agent ended without a reason"),
        ("begin(); end('RateLimitError', exception_str='slow down')", "RateLimitError: slow down"),
    ],
)
def test_a_process_that_fails_gives_no_grade(proven: Proven, tmp_path: Path, program: str, expected: str) -> None:
    begin = time.monotonic()
    rollout, record, _ = solve(proven, tmp_path, program)
    assert (rollout.exit_reason, rollout.resolved, rollout.ending) == ("model", None, "aborted")
    assert expected in rollout.reason.detail
    assert expected in record.detail
    assert time.monotonic() - begin < 30


@pytest.mark.bubblewrap
def test_a_process_that_hangs_is_ended_and_its_work_is_kept(proven: Proven, tmp_path: Path) -> None:
    program = (
        "begin(); run(\"sed -i 's/a - b/a + b/' calc.py\"); message('tool', 'done', returncode=0, raw_output='')\n"
        "say(event='query'); hear(); time.sleep(600)"
    )
    begin = time.monotonic()
    rollout, record, folder_of_rollout = solve(proven, tmp_path, program, wall_s=3.0)
    assert time.monotonic() - begin < 30
    assert (rollout.exit_reason, rollout.resolved) == ("time_limit", True)
    assert rollout.cost_usd == 0.5
    assert record.steps[0].arguments["command"].startswith("sed")
    native = json.loads((folder_of_rollout / NATIVE).read_text())
    assert native["info"]["exit_status"] == "TimeExceeded"
    assert native["info"]["model_stats"] == {"instance_cost": 0.5, "api_calls": 1}
    assert len(native["messages"]) == 4


@pytest.mark.bubblewrap
def test_huge_and_binary_outputs_arrive(proven: Proven, tmp_path: Path) -> None:
    program = """
begin()
big = run("head -c 9000000 /dev/zero | tr '\\\\0' x; printf '\\\\xff'")
assert 1_000_000 <= len(big["output"]) < 1_001_000 and big["extra"]["elided_chars"] == 8_000_001, big["extra"]
assert run(7)["exception_info"] == "a command must be a string, not int"
assert run("echo \\0")["exception_info"] == "a command cannot contain NUL or lone surrogates"
assert "at most 100000 bytes" in run("x" * 200_000)["exception_info"]
late = run("sleep 30")
assert late["returncode"] == -1 and "wall time (1 s)" in late["exception_info"], late
assert run("echo no; false") ["returncode"] == 1
done = run("echo 'a = 1' >> calc.py; touch patch.txt; echo ' COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT'; cat patch.txt")
assert done["returncode"] == 0
end("Submitted", submission="whatever it prints")
"""
    rollout, record, folder_of_rollout = solve(proven, tmp_path, program, command_s=1.0)
    assert rollout.exit_reason == "submitted", rollout.reason
    assert rollout.resolved is False
    patch = (folder_of_rollout / PATCH).read_text()
    assert "+a = 1" in patch
    assert "patch.txt" not in patch
    assert record.result["patch"] == patch
    assert record.steps[-1].kind == "submit"


@pytest.mark.bubblewrap
def test_a_folder_instead_of_the_printed_patch_is_not_an_infrastructure_failure(proven: Proven, tmp_path: Path) -> None:
    program = """
begin()
run("sed -i 's/a - b/a + b/' calc.py; mkdir patch.txt; touch patch.txt/x; echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
end("Submitted")
"""
    rollout, _, _ = solve(proven, tmp_path, program)
    assert (rollout.exit_reason, rollout.resolved) == ("submitted", True), rollout.reason


def test_a_process_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text("import time; time.sleep(600)")
    with Process(Path(sys.executable), "openai/m", "", driver=tmp_path / "driver.py") as process:
        begin = time.monotonic()
        with pytest.raises(LateError):
            process.send({"output": "x" * 10_000_000}, timeout_s=0.5)
        assert time.monotonic() - begin < 10
        with pytest.raises(LateError):
            process.receive(timeout_s=0.2)


def test_child_processes_end_with_it(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        'os.write(int(sys.argv[1]), b\'{"event": "%d"}\\n\' % child.pid)\n'
    )
    with Process(Path(sys.executable), "openai/m", "", driver=tmp_path / "driver.py") as process:
        child = int(process.receive(timeout_s=20)["event"])
        with pytest.raises(ModelError, match="ended with status 0: it printed nothing"):
            process.receive(timeout_s=20)
    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_gets_only_the_keys_of_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_TOKEN", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, f"{KEY}-{name}")
    environment, secrets = environment_for("openai/gpt-5", "", tmp_path)
    assert environment["OPENAI_API_KEY"] == f"{KEY}-OPENAI_API_KEY"
    assert not {"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_TOKEN", "GEMINI_API_KEY"} & environment.keys()
    assert secrets == {f"{KEY}-OPENAI_API_KEY": "OPENAI_API_KEY"}
    assert environment["HOME"] == str(tmp_path)
    assert "AWS_SECRET_ACCESS_KEY" in environment_for("bedrock/claude", "", tmp_path)[0]
    assert "127.0.0.1" in environment_for("openai/m", "http://127.0.0.1:1/v1", tmp_path)[0]["NO_PROXY"]


def test_its_output_is_shown_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "driver.py").write_text("import os; raise SystemExit('refused: ' + os.environ['OPENAI_API_KEY'])")
    with (
        Process(Path(sys.executable), "openai/m", "", driver=tmp_path / "driver.py") as process,
        pytest.raises(ModelError, match=r"status 1: refused: \[OPENAI_API_KEY\]"),
    ):
        process.receive(timeout_s=20)


def test_a_missing_interpreter_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"interpreter .*nothing cannot be started: No such file"):
        Process(tmp_path / "nothing", "openai/m", "")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--solver", "mini-swe-agent:gpt-5"], "mini-swe-agent:gpt-5: mini-swe-agent takes a model as PROVIDER/MODEL"),
        (["--solver", "mini-swe-agent:vllm:/weights"], "mini-swe-agent takes a model as PROVIDER/MODEL"),
        (["--solver", "mini-swe-agent:openai/m", "--repeats", "3"], "--repeats has no effect on mini-swe-agent"),
        (["--solver", "mini-swe-agent:openai/m", "--context", "99"], "--context has no effect on mini-swe-agent"),
        (["--solver", "mini-swe-agent:openai/m", "--cache", "c"], "--cache has no effect on mini-swe-agent"),
        (["--solver", "mini-swe-agent:openai/m", "--bundles", "b"], "--bundles has no effect on mini-swe-agent"),
        (["--solver", "mini-swe-agent:openai/m", "--tries", "3"], "--tries is for the solver search"),
        (["--solver", "search", "--mini-python", "p"], "--mini-python is for mini-swe-agent:MODEL, not for search"),
        (
            ["--solver", "mini-swe-agent:openai/m", "--mini-python", "/nowhere/python"],
            "--mini-python: /nowhere/python is",
        ),
        (
            ["--solver", "mini-swe-agent:openai/m", "--mini-python", "PLAIN"],
            "has no mini-swe-agent with litellm",
        ),
        (["--judge", "mini-swe-agent:openai/m"], "mini-swe-agent is a solver, for --solver alone"),
    ],
)
def test_invalid_options_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], expected: str
) -> None:
    argv = [str(plain_python()) if w == "PLAIN" else w for w in argv]
    assert ssr(["solve", str(tmp_path / "artifact"), "--repo", str(tmp_path), *argv]) == 2
    assert expected in capsys.readouterr().err
    assert ssr(["play", str(tmp_path), "--injector", "mini-swe-agent:openai/m"]) == 2
    assert "mini-swe-agent is a solver, for --solver alone" in capsys.readouterr().err


def test_its_environment_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a uv that logs its arguments, and an interpreter that prints its versions."""
    log, versions_json = tmp_path / "log", '{"mini-swe-agent": "2.4.6", "litellm": "1.105.3", "tenacity": "9"}'
    (tmp_path / "python").write_text(f"#!/bin/sh\necho '{versions_json}'\n")
    (tmp_path / "uv").write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" = venv ] || exit 0\nfor last; do :; done\n'
        f'mkdir -p "$last/bin" && cp {tmp_path}/python "$last/bin/python"\n'
    )
    for name in ("python", "uv"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(interpreter, "uv_program", lambda: str(tmp_path / "uv"))
    store = Store(tmp_path / "store")
    first, second = mini_python(None, store), mini_python(None, store)
    assert first == second == (first[0], versions_json)
    assert first[0].is_relative_to(store.root / "environments")
    commands = log.read_text().splitlines()
    assert len(commands) == 2
    assert commands[1].endswith("mini-swe-agent==2.4.6 litellm==1.105.3")
    assert "--no-build" in commands[1]
    with pytest.raises(SettingsError, match="set SSR_MINI_PYTHON to one that has it"):
        mini_python(None, None)
    (tmp_path / "python").write_text(f"#!/bin/sh\necho '{versions_json.replace('2.4.6', '1.17.5')}'\n")
    with pytest.raises(SettingsError, match=r"has mini-swe-agent 1\.17\.5, not 2\.x"):
        mini_python(tmp_path / "python", store)
