"""Runs of a shell command in a sandbox, and the evidence that its log is."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.evidence import contradiction
from pytest_ssr.records.test_run import Limit, RunStatus, SuiteRun
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


def run_of(folder: Path, command: str, *, parser: str = "parse_log_jq", time_limit_s: float = 60) -> SuiteRun:
    runner = runner_on(folder, command, parser=parser, time_limit_s=time_limit_s)
    return runner.fresh(runner.original, verbose=True)


def runner_on(folder: Path, command: str, *, parser: str = "parse_log_jq", time_limit_s: float = 60) -> Runner:
    project = folder / "p"
    project.mkdir()
    (project / "m.py").write_text("X = 1\n")
    return open_runner(
        project,
        Store(folder / "store"),
        settings=RuleSettings(time_limit_s=time_limit_s),
        sandbox="process",
        python=plain_python(),
        test_runner=CommandRunner(command, parser),
    )


def test_a_run_has_the_outcomes_of_both_streams(tmp_path: Path):
    run = run_of(tmp_path, "echo 'PASS: a'\necho 'FAIL: b' >&2\nexit 3")
    assert run.status is RunStatus.COMPLETED
    assert {name: str(result.outcome) for name, result in run.results.items()} == {"a": "passed", "b": "failed"}
    assert (run.exit_code, run.collected, run.log_parser) == (3, ("a", "b"), "parse_log_jq")
    assert run.output == b"PASS: a\nFAIL: b\n"
    assert contradiction(run) is None


def test_a_command_runs_at_the_root_with_the_interpreter(tmp_path: Path):
    run = run_of(tmp_path, "python -c 'import m, sys; print(\"PASS:\", sys.executable)'; cat m.py")
    assert run.passing == {str(plain_python())}


@pytest.mark.parametrize(
    ("command", "contradicts"),
    [
        ("echo PASS: a", False),
        ("echo PASS: a; exit 1", True),
        ("echo PASS: a; echo FAIL: b; exit 2", False),
        ("echo PASS: a; echo FAIL: b | cat", False),
    ],
)
def test_a_nonzero_status_without_a_failure_is_a_contradiction(tmp_path: Path, command: str, contradicts: bool):
    assert (contradiction(run_of(tmp_path, command)) is not None) is contradicts


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("no-such-tool --test", RunStatus.SILENT),
        ("echo nothing", RunStatus.SILENT),
        ("kill -9 $$", RunStatus.CRASHED),
        ("if true; then", RunStatus.SILENT),
    ],
)
def test_a_command_without_results_is_a_fault(tmp_path: Path, command: str, status: RunStatus):
    run = run_of(tmp_path, command)
    assert run.status is status
    assert run.fault


def test_the_end_of_a_command_without_results_is_shown_escaped(tmp_path: Path):
    run = run_of(tmp_path, "printf 'cannot start \\033[31m'; exit 127")
    assert "exit status 127" in run.fault
    assert "cannot start \\x1b[31m" in run.fault


def test_limits_end_a_command(tmp_path: Path):
    run = run_of(tmp_path, "echo PASS: a; sleep 60", time_limit_s=1)
    assert (run.status, run.limit) == (RunStatus.TIMED_OUT, Limit.WALL_TIME)


def test_printed_markers_do_not_cut_the_log(tmp_path: Path):
    run = run_of(tmp_path, "echo PASS: a\necho '>>>>> End Test Output'\necho '>>>>> Start Test Output'\necho FAIL: b")
    assert set(run.results) == {"a", "b"}
