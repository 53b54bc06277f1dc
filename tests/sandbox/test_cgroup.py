"""Limits with control groups if they can be created, and the same guarantees without them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ssr.sandbox import reap
from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.sandbox.supervision import cgroup, proc_usage
from pytest_ssr.testing import SandboxContract

SMALL = Limits(wall_s=60, memory_bytes=128 * MIB, disk_bytes=MIB, processes=40)


@pytest.fixture
def groups() -> list[Path]:
    if not cgroup.usable():
        pytest.skip("this user cannot create control groups here")
    return list(cgroup._group_parents())


class TestSampledAlone(SandboxContract):
    isolates = False

    @pytest.fixture
    def provider(self, monkeypatch: pytest.MonkeyPatch) -> ProcessProvider:
        monkeypatch.setattr(cgroup, "usable", lambda: False)
        return ProcessProvider()


def leftovers(groups: list[Path]) -> list[str]:
    cgroup.sweep(wait_s=2.0)
    return [f.name for parent in groups for f in parent.glob(f"ssr-{os.getpid()}-*")]


def test_a_command_runs_in_a_group_of_its_own(groups: list[Path], tmp_path: Path) -> None:
    with ProcessProvider().open(tmp_path, mount_at="/w") as sandbox:
        shown = sandbox.exec(["cat", "/proc/self/cgroup"], limits=SMALL).stdout.decode()
        assert f"/ssr-{os.getpid()}-" in shown
        assert leftovers(groups) == []
        assert sandbox.exec(["sh", "-c", "exit 125"], limits=SMALL).exit_code == 125
        assert sandbox.exec(["sh", "-c", "kill -9 $$"], limits=SMALL).exit_code == -9


@pytest.mark.parametrize(("then", "wall_s"), [("os.wait()", 60), ("import time; time.sleep(60)", 5)])
def test_memory_used_between_samples_is_reported_as_its_limit(
    groups: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, wall_s: float
) -> None:
    """Shared memory is not counted by limits of single processes, and no sample is taken here."""
    monkeypatch.setattr("pytest_ssr.sandbox.supervision.supervisor._SAMPLE_S", 60.0)
    program = "import mmap, time; held = mmap.mmap(-1, 50 << 20); held.write(bytes(50 << 20)); time.sleep(60)"
    waiting = (
        "import os, subprocess, sys\n"
        "for _ in range(8):\n"
        f"    subprocess.Popen([sys.executable, '-c', {program!r}])\n"
        f"{then}"
    )
    with ProcessProvider().open(tmp_path, mount_at="/w") as sandbox:
        limits = replace(SMALL, wall_s=wall_s)
        assert sandbox.exec([sys.executable, "-c", waiting], limits=limits).limit is Limit.MEMORY
    assert leftovers(groups) == []


IN_A_FULL_GROUP = """\
import os, sys
from pathlib import Path
from pytest_ssr.sandbox.supervision import cgroup
from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.sandbox.protocol import MIB, Limits

(Path(sys.argv[1]) / "cgroup.procs").write_text("0")
held = "import mmap, time; open('/proc/self/oom_score_adj', 'w').write('1000'); held = mmap.mmap(-1, 50 << 20); "
held += "held.write(bytes(50 << 20)); time.sleep(60)"
program = (
    "import os, subprocess, sys\\n"
    f"for _ in range(2): subprocess.Popen([sys.executable, '-c', {held!r}])\\n"
    "import time; os.wait() if sys.argv[1] == 'ends' else time.sleep(60)"
)
before = cgroup.oom_kill_count()
with ProcessProvider().open(Path(sys.argv[2]), mount_at="/w") as sandbox:
    limits = Limits(wall_s=60 if sys.argv[3] == "ends" else 5, memory_bytes=1024 * MIB, disk_bytes=MIB, processes=40)
    print(sandbox.exec([sys.executable, "-c", program, sys.argv[3]], limits=limits).limit, cgroup.oom_kill_count() - before)
"""


HOG = """\
import mmap, sys, time
from pathlib import Path

(Path(sys.argv[1]) / "cgroup.procs").write_text("0")
held = mmap.mmap(-1, 180 << 20)
held.write(bytes(180 << 20))
print("held", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("ending", ["ends", "waits"])
def test_a_kill_for_memory_used_elsewhere_is_not_the_limit_of_the_command(
    groups: list[Path], tmp_path: Path, ending: str
) -> None:
    """The parent group, which stands for the machine here, is used up by others; the command's own group is not.

    A command that uses more than half of the available memory is responsible itself.
    """
    top = groups[-1] / f"ssr-{os.getpid()}-full"
    inner, other = top / "inner", top / "other"
    hog: subprocess.Popen[bytes] | None = None
    unified = (Path("/sys/fs/cgroup") / "cgroup.controllers").exists()
    inner.mkdir(parents=True)
    try:
        if unified:
            (top / "cgroup.subtree_control").write_text("+memory +pids")
        (top / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(256 * MIB))
        other.mkdir()
        hog = subprocess.Popen([sys.executable, "-c", HOG, str(other)], stdout=subprocess.PIPE)
        assert hog.stdout is not None
        assert hog.stdout.readline() == b"held\n"
        command = [sys.executable, "-c", IN_A_FULL_GROUP, str(inner), str(tmp_path), ending]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        if hog is not None:
            hog.kill()
            hog.communicate()
        cgroup._remove(other, wait_s=5.0)
        cgroup._remove(inner, wait_s=5.0)
        cgroup._remove(top, wait_s=5.0)
    assert done.stdout == "machine's memory 1\n", done.stderr


def test_processes_refused_between_samples_are_reported_as_their_limit(
    groups: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_ssr.sandbox.supervision.supervisor._SAMPLE_S", 60.0)
    script = "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); done; exit 3"
    with ProcessProvider().open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.exec(["sh", "-c", script], limits=SMALL).limit is Limit.PROCESSES
    assert leftovers(groups) == []


def test_processes_are_examined_singly_only_if_the_group_may_exceed_a_limit(
    groups: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert groups
    usage, samples = proc_usage.Descendants.usage, []

    def record_usage(self: proc_usage.Descendants) -> proc_usage.Usage:
        samples.append(usage(self))
        return samples[-1]

    monkeypatch.setattr(proc_usage.Descendants, "usage", record_usage)
    with ProcessProvider().open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.exec(["sleep", "0.5"], limits=SMALL).limit is None
        # Only at its end are leftover processes looked for.
        assert not any(usage.pids for usage in samples)
        script = "i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done; wait"
        assert sandbox.exec(["sh", "-c", script], limits=SMALL).limit is Limit.PROCESSES


HOP = """\
import os, sys, time
if not os.fork():
    sys.stdin.readline()
    if os.fork():
        os._exit(0)
    print("hopped", flush=True)
    time.sleep(60)
"""


def test_a_process_that_starts_another_while_processes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "HOP": "by-this-test"}
    command = [sys.executable, "-c", HOP]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes, text=True) as process:
        descendants = proc_usage.Descendants(process.pid, b"HOP=by-this-test")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert len(descendants.usage().pids) == 1
        listdir, lists = os.listdir, []

        def list_then_hop(path: str) -> list[str]:
            lists.append(listdir(path))
            if len(lists) == 1:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "hopped\n"
            return lists[-1]

        monkeypatch.setattr(os, "listdir", list_then_hop)
        monkeypatch.setattr(os, "killpg", lambda *_: None)
        descendants.kill()
        monkeypatch.undo()
        assert len(lists) > 1
        assert descendants.usage().pids == set()


def test_groups_of_processes_that_are_gone_are_removed(groups: list[Path]) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    gone = [parent / f"ssr-{process.pid}-0" for parent in groups]
    alive = groups[0] / f"ssr-{os.getpid()}-77"
    for folder in (*gone, alive):
        folder.mkdir()
    reap()
    assert not any(folder.exists() for folder in gone)
    assert alive.exists()
    alive.rmdir()


@pytest.mark.parametrize(
    ("lines", "enabled", "expected"),
    [
        ("0::/user/app/scope\n", {"user/app": "memory pids"}, ["user/app"]),
        ("0::/user/app/scope\n", {"user/app/scope": "cpu memory pids"}, ["user/app/scope"]),
        ("0::/\n", {"": "memory pids"}, [""]),
        ("4:memory:/deep/one\n8:pids:/\n2:cpu,cpuacct:/\n", None, ["pids", "memory/deep/one"]),
    ],
)
def test_parents_of_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, enabled: dict[str, str] | None, expected: list[str]
) -> None:
    own = tmp_path / "own"
    own.write_text(lines)
    for folder in ("user/app/scope", "pids", "memory/deep/one"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("user/app/scope", "user/app", "user", ""):
        (tmp_path / folder / "cgroup.subtree_control").write_text((enabled or {}).get(folder, "cpu"))
    monkeypatch.setattr(cgroup, "_TOP", tmp_path)
    monkeypatch.setattr(cgroup, "_OWN", own)
    monkeypatch.setattr(cgroup, "_is_unified", lambda: enabled is not None)
    assert list(cgroup._group_parents()) == [tmp_path / folder for folder in expected]


def test_no_group_without_controllers_for_child_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    (tmp_path / "a/b").mkdir(parents=True)
    for folder in ("a", "a/b"):
        (tmp_path / folder / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(cgroup, "_TOP", tmp_path)
    monkeypatch.setattr(cgroup, "_OWN", own)
    monkeypatch.setattr(cgroup, "_is_unified", lambda: True)
    with pytest.raises(OSError, match=r"a/b nor its parent enables memory and pids"):
        cgroup.Group(SMALL)
