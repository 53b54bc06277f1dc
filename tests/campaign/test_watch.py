"""Each save of a file is reviewed, until an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

CODE = """def double(x):
    return x * 2


def clamp(value, high):
    return value
"""
CLAMP = "    if value > high:\n        return high\n    return value\n"
TESTS = """import calc


def test_double():
    assert calc.double(3) == 6


def test_clamp():
    assert calc.clamp(3, 5) == 3
"""
MORE_TESTS = """

def test_high():
    assert [calc.clamp(n, 5) for n in (4, 5, 6, 100)] == [4, 5, 5, 5]
"""


class Watch:
    """A running `ssr watch --json`."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "harness.cli", "watch", "--json", "--python", str(plain_python())]
        self.process = subprocess.Popen(
            [*command, "--time", "30s", "--jobs", "2"],
            cwd=folder,
            stdout=subprocess.PIPE,
            # A background job of a shell ignores it, and a child inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def read(self) -> dict[str, Any]:
        """Return the next object."""
        assert self.process.stdout is not None
        content: dict[str, Any] = json.loads(self.process.stdout.readline())
        return content


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "calc.py").write_text(CODE)
    (tmp_path / "test_calc.py").write_text(TESTS)
    return tmp_path


@pytest.fixture
def watching(project: Path) -> Iterator[Watch]:
    watch = Watch(project)
    timer = threading.Timer(120, watch.process.kill)
    timer.start()
    try:
        assert "message" in watch.read()
        yield watch
    finally:
        timer.cancel()
        watch.process.kill()
        watch.process.communicate()


def test_saves_are_reviewed(project: Path, watching: Watch) -> None:
    (project / "calc.py").write_text(CODE.replace("    return value\n", CLAMP))
    first = watching.read()
    assert first["complete"]
    assert {remark["function"] for remark in first["remarks"]} == {"clamp"}
    # Broken code is a message; the tests that are missing are asked for again once they are written.
    (project / "calc.py").write_text("def double(x:\n")
    assert set(watching.read()) == {"message"}
    (project / "test_calc.py").write_text(TESTS + MORE_TESTS)
    (project / "calc.py").write_text(CODE.replace("    return value\n", CLAMP))
    again = watching.read()
    while "message" in again:
        # The tests may be seen before the code.
        again = watching.read()
    assert len(again["remarks"]) < len(first["remarks"])
    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait() == 0
