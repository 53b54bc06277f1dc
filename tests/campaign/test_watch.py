"""Each save of a file is reviewed, until an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from harness.cli.commands import watch as command
from pytest_ssr.errors import SsrError
from pytest_ssr.project.snapshot import Snapshot, change_stamps, take_snapshot

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


@pytest.mark.long
def test_the_last_functions_are_reviewed_again_wherever_they_are(project: Path, watching: Watch) -> None:
    code = CODE.replace("    return value\n", CLAMP)
    (project / "calc.py").write_text(code)
    first = watching.read()
    (project / "calc.py").write_text("# Numbers.\n" * 20 + code)
    assert set(watching.read()) == {"message"}
    (project / "test_calc.py").write_text(TESTS + MORE_TESTS)
    again = watching.read()
    assert again["tried"] == first["tried"]
    assert len(again["remarks"]) < len(first["remarks"])
    # Nor do changes in code that no test imports hide them.
    (project / "script.py").write_text("def main():\n    return 1\n")
    assert set(watching.read()) == {"message"}
    (project / "test_calc.py").write_text(TESTS)
    assert len(watching.read()["remarks"]) == len(first["remarks"])


class Saves:
    """The saves that a watcher sees while changes of a project are made, one after another, as it pauses."""

    def __init__(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trees = project / ".ssr" / "trees"
        self._project, self._changes = project, list[Callable[[], object]]()
        self.errors: list[SsrError] = []
        monkeypatch.setattr(command, "pause", self._pause)

    def _pause(self, seconds: float) -> None:
        # The pause that waits for quiet comes after a change that was seen.
        if seconds < command._POLL_S:
            return
        if not self._changes:
            raise KeyboardInterrupt
        self._changes.pop(0)()

    def after(self, *changes: Callable[[], object]) -> list[Snapshot]:
        """Return the project after each save that is seen while the changes are made."""
        self._changes = list(changes)
        stamps, first = change_stamps(self._project), take_snapshot(self._project, self.trees)
        seen: list[Snapshot] = []
        # An interrupt alone ends it.
        with pytest.raises(KeyboardInterrupt):
            seen.extend(command.saves(self._project, self.trees, first, stamps, self.errors.append))
        return seen


@pytest.fixture
def saves(project: Path, monkeypatch: pytest.MonkeyPatch) -> Saves:
    return Saves(project, monkeypatch)


def test_files_of_editors_are_no_saves(project: Path, saves: Saves) -> None:
    def renamed() -> None:
        (project / "4913").write_text(CODE + "\n\nX = 1\n")
        (project / "4913").rename(project / "calc.py")

    seen = saves.after(
        lambda: (project / ".calc.py.swp").write_text("open"),
        lambda: (project / ".#calc.py").symlink_to("somebody@here"),
        lambda: (project / "calc.py~").write_text(CODE),
        renamed,
        lambda: (project / "test_calc.py").unlink(),
    )
    assert [snapshot.read("calc.py") for snapshot in seen] == [(project / "calc.py").read_bytes()] * 2
    assert "test_calc.py" not in seen[-1].files


def test_a_file_that_always_changes_does_not_hide_saves(
    project: Path, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = project / "server.log"
    looks = 0

    def stamps(folder: Path) -> dict[str, tuple[int, int]]:
        nonlocal looks
        looks += 1
        if looks > 500:
            raise KeyboardInterrupt
        log.write_text(f"{looks} requests")
        return {**change_stamps(folder), "server.log": (looks, 0)}

    monkeypatch.setattr(command, "change_stamps", stamps)
    seen = saves.after(lambda: (project / "calc.py").write_text(CODE + "\n\nX = 1\n"))
    assert [snapshot.read("calc.py") for snapshot in seen] == [(project / "calc.py").read_bytes()]


def test_a_save_is_seen_by_more_than_its_time_and_size(project: Path) -> None:
    path = project / "calc.py"
    before, times = change_stamps(project), path.stat()
    # The clock of a file system has ticks of some milliseconds.
    for _ in range(200):
        path.write_text(CODE.replace("2", "3"))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if change_stamps(project) != before:
            break
    else:
        raise AssertionError("the save was not seen")


def test_a_file_that_vanishes_while_it_is_read_is_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = project / "calc.py.tmp"
    temporary.write_text("half")
    look = os.lstat

    def vanishing(path: str) -> os.stat_result:
        info = look(path)
        # Only where it is read: others look at it by a path object.
        if path == str(temporary):
            temporary.unlink()
        return info

    monkeypatch.setattr("pytest_ssr.project.snapshot.is_report", lambda path: False)
    monkeypatch.setattr("pytest_ssr.project.snapshot.os.lstat", vanishing)
    assert sorted(take_snapshot(project, project / ".ssr" / "trees").files) == ["calc.py", "test_calc.py"]
