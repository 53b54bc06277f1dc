"""Progress while the tests of a project are measured: what is counted, and what users see of it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.execution.suite import collected_in, run_suite
from pytest_ssr.progress import ProgressLines, progress_line
from pytest_ssr.project.interpreter import find_interpreter
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.fake import FakeCall, FakeSandbox, FakeSandboxProvider, fake_result
from pytest_ssr.sandbox.protocol import ExecResult, Limits

SLOW = """\
import time
import pytest
import calc


@pytest.mark.parametrize("n", range(8))
def test_slow(n):
    time.sleep(0.5)
    assert n or calc.add(2, 3) == 5
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A project whose eight tests take four seconds."""
    project = tmp_path / "slow"
    project.mkdir()
    (project / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (project / "test_calc.py").write_text(SLOW)
    (project / "pytest.ini").write_text("[pytest]\n")
    return project


@pytest.mark.parametrize("name", [pytest.param("bubblewrap", marks=pytest.mark.bubblewrap), "process"])
def test_a_run_reports_how_many_of_its_tests_have_run(slow: Path, name: str) -> None:
    reports: list[tuple[int, int]] = []
    python = find_interpreter(slow, plain_python())
    with load_provider(name).open(slow, mount_at=str(slow), readable=python.readable) as sandbox:
        run = run_suite(sandbox, python, limits=Limits(), progress=lambda *counts: reports.append(counts))
    assert len(run.passing) == 8
    finished = [done for collected, done in reports if collected]
    assert finished == sorted(finished)
    assert {collected for collected, _ in reports} <= {0, 8}
    assert any(0 < done < 8 for done in finished), reports


def test_without_progress_nothing_is_read(slow: Path) -> None:
    python = find_interpreter(slow, plain_python())
    with load_provider("process").open(slow, mount_at=str(slow)) as sandbox:
        assert run_suite(sandbox, python, limits=Limits(wall_s=1.5)).status == "timed-out"


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (b"", 0),
        (b'{"kind": "begin"}\n{"ids": ["a", "b"]', 0),
        (b'{"addopts": [], "kind": "begin"}\n{"ids": ["a", "b"], "kind": "collected"}\n{"id": "a"', 2),
        (b'{"ids": 3, "kind": "collected"}\n', 0),
        (b'nonsense, "kind": "collected"}\n', 0),
    ],
)
def test_the_collected_count_is_read_when_its_line_is_complete(raw: bytes, count: int) -> None:
    assert collected_in(raw) == count


def test_lines() -> None:
    assert progress_line(0, 0, 12.2) == "measuring the tests, 12 s"
    assert progress_line(1950, 812, 34.4) == "measuring the tests: 812 of 1950 run, 34 s"
    assert progress_line(5, 6, 200) == "measuring the tests: 5 of 5 run, 200 s"


def test_a_log_gets_a_line_every_15_s() -> None:
    now, written = [100.0], list[str]()
    show = ProgressLines(live=None, plain=written.append, clock=lambda: now[0])
    for second in range(1, 48):
        now[0] = 100.0 + second
        show(50, second)
    show.clear()
    assert written == [f"measuring the tests: {n} of 50 run, {n} s" for n in (15, 30, 45)]


def test_a_terminal_gets_a_line_that_changes_and_goes() -> None:
    live, written = list[str](), list[str]()
    show = ProgressLines(live=live.append, plain=written.append, clock=lambda: 0.0)
    show.clear()
    assert live == []
    show(0, 0)
    show(8, 3)
    show.clear()
    assert live == ["measuring the tests, 0 s", "measuring the tests: 3 of 8 run, 0 s", ""]
    assert written == []


PLUGIN = ["pytest", "-p", "no:anyio", "-p", "no:hypothesispytest", "--ssr-inject", "--ssr-count=1"]
PLUGIN += ["--ssr-sandbox=process", f"--ssr-python={plain_python()}"]
COMMAND = ["harness.cli", "inject", ".", "--count", "1", "--sandbox", "process", "--python", str(plain_python())]


def on_a_terminal(project: Path, argv: list[str]) -> str:
    """Run a program whose output is a terminal, and return all of its output."""
    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_", "CI"))}
    env |= {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-m", *argv], cwd=project, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = bytearray()
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:
                break
            if not piece:
                break
            written += piece
        os.close(ours)
    assert process.returncode in (0, 1), written.decode()
    return written.decode()


@pytest.mark.long
@pytest.mark.parametrize("argv", [PLUGIN, COMMAND], ids=["plugin", "command"])
def test_a_user_sees_the_tests_run(slow: Path, argv: list[str]) -> None:
    output = on_a_terminal(slow, argv)
    assert "measuring the tests: " in output
    assert " of 8 run, " in output
    assert "8 of 8 tests pass" in output
    last = next(line for line in output.splitlines() if "tests pass, one run" in line)
    assert "measuring" not in last.rpartition("\r")[2]
    assert re.search(r"about \d+ s for 1 bug, often", output)


@pytest.mark.long
@pytest.mark.parametrize("argv", [PLUGIN, COMMAND], ids=["plugin", "command"])
def test_a_log_stays_as_short_as_it_was(project: Path, argv: list[str]) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    command = [sys.executable, "-m", *argv]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measuring the tests" not in done.stdout + done.stderr


def test_a_sandbox_that_cannot_be_read_reports_only_that_the_run_continues(slow: Path) -> None:
    reports: list[tuple[int, int]] = []
    python = find_interpreter(slow, plain_python())

    def wait(sandbox: FakeSandbox, call: FakeCall) -> ExecResult:
        deadline = time.monotonic() + 30
        while not reports and time.monotonic() < deadline:
            time.sleep(0.05)
        return fake_result()

    with FakeSandboxProvider({(): wait}).open(slow, mount_at=str(slow)) as sandbox:
        run_suite(sandbox, python, limits=Limits(), progress=lambda *counts: reports.append(counts))
    assert set(reports) == {(0, 0)}
