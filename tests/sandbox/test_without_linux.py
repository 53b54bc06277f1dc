"""What only Linux has is hidden, as on macOS: everything can be imported, and the sandbox `process` proves bugs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.sandbox.supervision import process_table
from pytest_ssr.sandbox.supervision.proc_usage import Descendants, kill_marked

HIDDEN = Path(__file__).parents[1] / "support" / "hidden_linux"
IMPORT_ALL = """
import importlib, os, pkgutil
import harness, pytest_ssr
assert not hasattr(os, "memfd_create") and not os.path.exists("/proc/self"), "nothing is hidden"
for package in (pytest_ssr, harness):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".guest" in module.name or module.name.endswith(("__main__", "migrations.env")):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError:
            pass  # a package of an extra
        else:
            print(module.name)
"""


def run_python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(HIDDEN)}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)


def test_every_module_can_be_imported() -> None:
    done = run_python("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert {"pytest_ssr.plugin", "harness.cli.app", "pytest_ssr.sandbox.process"} <= set(done.stdout.splitlines())


@pytest.fixture
def python() -> Iterator[Path]:
    """An interpreter whose own processes find nothing of Linux, either."""
    (site,) = plain_python().parent.parent.glob("lib/python*/site-packages")
    shutil.copy(HIDDEN / "sitecustomize.py", site)
    yield plain_python()
    (site / "sitecustomize.py").unlink()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("ps") is None, reason="processes are listed by ps")
def test_bugs_are_proven(tmp_path: Path, python: Path) -> None:
    (tmp_path / "calc.py").write_text("def double(x):\n    return x * 2\n\n\ndef half(x):\n    return x // 2\n")
    (tmp_path / "test_calc.py").write_text(
        "import calc\n\n\ndef test_double():\n    assert calc.double(3) == 6\n\n\n"
        "def test_half():\n    assert calc.half(8) == 4\n"
    )
    command = ("inject", str(tmp_path), "--count", "2", "--sandbox", "process", "--python", str(python), "--json")
    done = run_python("-m", "harness.cli", *command)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["valid"]) == 2
    assert {attempt["tier"] for attempt in found["attempts"]} == {"fresh"}, "warm processes need Linux"
    done = run_python(
        "-m",
        "harness.cli",
        "validate",
        tmp_path / ".ssr" / "artifacts" / found["valid"][0],
        "--repo",
        tmp_path,
        "--sandbox",
        "process",
        "--python",
        python,
    )
    assert done.returncode == 0, done.stderr


def refusing(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `ps` be refused so many times, as by a system that has no room for another process."""
    run, refusals = process_table._run_ps, iter(range(times))
    monkeypatch.setattr(process_table, "has_proc", lambda: False)
    monkeypatch.setattr(
        process_table, "_run_ps", lambda *given: (0, b"") if next(refusals, None) is not None else run(*given)
    )


@pytest.mark.parametrize("by_marker", [False, True])
def test_processes_that_cannot_be_listed_are_killed_later(by_marker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"SSR_TEST_{os.getpid()}_{by_marker}"
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as root:
        env = {**os.environ, marker: "1"}
        with subprocess.Popen(["sleep", "60"], start_new_session=True, env=env) as other:
            refusing(4, monkeypatch)
            # Otherwise `ps` runs for each process of the machine.
            marks = {other.pid: marker.encode(), os.getpid(): marker.encode() if by_marker else b"none"}
            monkeypatch.setattr(process_table, "environment_of", lambda pid: marks.get(pid, b"none"))
            monkeypatch.setattr(process_table, "command_line_of", lambda pid: b"")
            if by_marker:
                kill_marked(marker.encode())
            else:
                Descendants(root.pid, marker.encode()).kill()
            code = other.poll()
            root.kill()
            other.kill()
    assert code == -signal.SIGKILL
