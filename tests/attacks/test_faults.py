"""Faults of the machine in the middle of a grade: they cause no wrong grade, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ssr.execution import runner
from pytest_ssr.execution.script import ScriptOutput
from pytest_ssr.grading import grade as grade_module
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.sandbox.docker.container import Container
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.supervision import cgroup

pytestmark = pytest.mark.long


@contextlib.contextmanager
def repeatedly(act: Callable[[], None], *, most: int) -> Iterator[list[int]]:
    """Repeat an action while the block runs until it took effect `most` times; yield one item for each effect."""
    over = threading.Event()
    done: list[int] = []

    def work() -> None:
        while not over.wait(0.02) and len(done) < most:
            if act():
                done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def kill_containers(monkeypatch: pytest.MonkeyPatch, *, most: int) -> Iterator[list[int]]:
    """Kill each container in the middle of its first command while the block runs, `most` of them."""
    start, done = Container.start, []

    def start_and_kill(self, *args, **kwargs):
        started = start(self, *args, **kwargs)
        if len(done) < most:
            time.sleep(0.1)
            self._client.api.kill(self._id)
            done.append(1)
        return started

    with monkeypatch.context() as patch:
        patch.setattr(Container, "start", start_and_kill)
        yield done


def kill_launchers(name: str) -> Callable[[], bool]:
    """Return a function that kills the launcher of a sandbox, as the kernel does when memory runs out."""

    def kill() -> bool:
        mine = {os.getpid()}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                argv = (path / "cmdline").read_bytes().split(b"\0")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            # Apptainer changes its process name to "Apptainer runtime parent".
            if parent in mine and os.path.basename(argv[0]).lower().startswith(name.encode()):
                os.kill(int(path.name), signal.SIGKILL)
                return True
        return False

    return kill


KILLERS = [
    pytest.param("docker", None, marks=pytest.mark.docker),
    pytest.param("apptainer", "apptainer", marks=pytest.mark.apptainer),
    pytest.param("bubblewrap", "unshare", marks=pytest.mark.bubblewrap),
]


@pytest.mark.parametrize("often", [1, 10_000])
@pytest.mark.parametrize(("sandbox", "program"), KILLERS)
def test_a_sandbox_that_is_killed_gives_no_wrong_grade(
    clean_machine, open_arena, texts, monkeypatch, sandbox, program, often
):
    arena = open_arena(sandbox)
    faults = repeatedly(kill_launchers(program), most=often) if program else kill_containers(monkeypatch, most=often)
    with faults as done:
        grade = arena.grade({"pkg/adding.py": texts["pkg/adding.py"]})
    assert done, "nothing was killed: the test proves nothing"
    if often == 1:
        assert grade.resolved is True, grade.reason
    else:
        assert grade.resolved is None
        assert grade.reason.code is ReasonCode.SANDBOX_FAILED
    assert arena.grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system to fill")
@pytest.mark.bubblewrap
def test_a_full_disk_gives_no_grade(open_arena, texts, tmp_path, monkeypatch):
    arena = open_arena("bubblewrap")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(small)], check=True)
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        filling = small / "filling"

        def fill() -> bool:
            if not any(small.glob("ssr-*")):
                return False
            with filling.open("wb") as file:
                for _ in range(120):
                    try:
                        file.write(bytes(1 << 20))
                        file.flush()
                    except OSError:
                        return True
            return False

        writes = texts["pkg/adding.py"] + "open('junk', 'wb').write(bytes(1 << 20))\n"
        with repeatedly(fill, most=1) as done:
            grade = arena.grade({"pkg/adding.py": writes})
        assert done
        assert grade.resolved is None
        assert "MiB are free at" in grade.reason.detail
        filling.unlink()
        assert arena.grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_run_with_one_kill_by_the_kernel_is_repeated(copied, texts, monkeypatch):
    run, killed = runner.run_script, []

    def once(sandbox, *args, **kwargs):
        if killed:
            return run(sandbox, *args, **kwargs)
        killed.append(cgroup.classify_kill(by_limit=False))
        fault = CheckReason.of(CheckCode.SCRIPT_LIMIT, limit=str(killed[0]), seconds=1)
        return ScriptOutput(b"", None, 1.0, fault, killed[0])

    monkeypatch.setattr(cgroup, "usable", lambda: True)
    monkeypatch.setattr(runner, "run_script", once)
    grade = copied.grade({"pkg/adding.py": texts["pkg/adding.py"] + "# mended\n"})
    assert killed
    assert grade.resolved is True, grade.reason


def test_a_process_killed_because_memory_ran_out_gives_no_grade(copied, monkeypatch):
    counted = iter(range(100))
    monkeypatch.setattr(grade_module, "oom_kill_count", lambda: next(counted))
    grade = copied.grade({"pkg/adding.py": "def add(a, b):\n    return 0\n\n\ndef double(a):\n    return 0\n"})
    assert grade.resolved is None
    assert grade.reason.code is ReasonCode.OUT_OF_MEMORY
    assert isinstance(cgroup.oom_kill_count(), int)
    begin = time.monotonic()
    workdirs.require_disk_space()
    assert time.monotonic() - begin < 5
