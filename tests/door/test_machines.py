"""Machines, users and folders of other people: the command finds a bug there, or states what is in its way."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from plain import plain_python

from harness.cli.exit_code import ExitCode
from pytest_ssr.sandbox.filesystem.safe_files import PlainFiles

CODE = "def add(a, b):\n    return a + b\n"
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\ndef test_other():\n    pass\n"
# What a shell or a service runs before the command; $1 is an empty folder, the command follows.
SHELL = ("bash", "-c")
# A user who is somebody else in a namespace of users, and one who may mount there.
UNKNOWN_USER = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
MAY_MOUNT = ("unshare", "--user", "--map-root-user", "--mount")
ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


@dataclass(frozen=True, slots=True)
class Machine:
    """How a command is started."""

    prefix: Sequence[str] = ()
    script: str = ""
    """Shell commands to run first; $1 is an empty folder."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Changes of the environment; `{}` in a value is the empty folder."""


MACHINES = {
    "no home": Machine(env={"HOME": None, "USER": None, "LOGNAME": None}),
    "a home that cannot be written": Machine(env={"HOME": "/proc", "XDG_CACHE_HOME": "/proc"}),
    "a user without a name and a home": Machine(UNKNOWN_USER, env={"HOME": None, "USER": None, "LOGNAME": None}),
    "a temporary folder with a space": Machine(script='mkdir "$1/a b"', env={"TMPDIR": "{}/a b"}),
    "a temporary folder that does not exist": Machine(env={"TMPDIR": "{}/missing"}),
    "a temporary folder that runs no programs": Machine(
        MAY_MOUNT, 'mount -t tmpfs -o noexec,mode=1777 ssr "$1"', {"TMPDIR": "{}"}
    ),
    "a full temporary folder": Machine(
        MAY_MOUNT, 'mount -t tmpfs -o size=16k ssr "$1"; head -c 1M /dev/zero 2>&- >"$1/x"', {"TMPDIR": "{}"}
    ),
    "a temporary folder with a long path": Machine(
        script=f'mkdir -p "$1/{"x" * 120}/{"y" * 120}"', env={"TMPDIR": f"{{}}/{'x' * 120}/{'y' * 120}"}
    ),
    "no shared memory": Machine(MAY_MOUNT, "mount -t tmpfs -o ro ssr /dev/shm"),
    "no programs": Machine(env={"PATH": "/nonexistent"}),
    "hardly any environment": Machine(("env", "-i")),
    "one core, few open files, private ones": Machine(("taskset", "-c", "0"), "umask 077; ulimit -n 64"),
    "ignored ends of children": Machine(script="trap '' CHLD"),
    "no input and ignored interrupts, as by nohup": Machine(script="exec <&-; trap '' INT HUP"),
    "Python without assertions, with strict warnings": Machine(env={"PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "error"}),
    "the repository of a hook": Machine(
        script='git init -q "$1/other"', env={"GIT_DIR": "{}/other/.git", "GIT_INDEX_FILE": "{}/other/.git/index"}
    ),
}
FOLDERS = [
    "a Köln\n%20%s:+,=",
    os.fsdecode(b"a'b\"c\\d[1]*{e}$HOME;&()\xe4"),
    "-a",
    f"{'x' * 200}/{'y' * 200}",
    ".venv/lib/python3.11/site-packages/build/a",
]


@functools.cache
def works(prefix: tuple[str, ...]) -> bool:
    return shutil.which(prefix[0]) is not None and not subprocess.run([*prefix, "true"], check=False).returncode


def write_project(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "calc.py").write_text(CODE)
    (folder / "test_calc.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def inject(
    project: Path, empty: Path, machine: Machine, *argv: str, given: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Look for one bug with the real command. given: the project as the command names it."""
    if machine.prefix and not works(tuple(machine.prefix)):
        pytest.skip(f"{machine.prefix[0]} does not work here")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_", "CI"))}
    for name, value in machine.env.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value.replace("{}", str(empty))
    command = [sys.executable, "-m", "harness.cli", "inject", f"--python={plain_python()}", "--sandbox=process"]
    command += ["--count=1", *argv, "--", given or str(project)]
    if machine.script:
        command = [*SHELL, f'{machine.script}\nshift; exec "$@"', "bash", str(empty), *command]
    return subprocess.run(
        [*machine.prefix, *command],
        env=env,
        cwd=cwd or project.parent,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )


def bugs(project: Path) -> int:
    return len(list(project.glob(".ssr/artifacts/*/artifact.json")))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", MACHINES)
def test_a_bug_is_found_on(tmp_path: Path, empty: Path, name: str) -> None:
    project = write_project(tmp_path / "project")
    done = inject(project, empty, MACHINES[name])
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr
    assert bugs(project) == 1


@pytest.mark.parametrize("name", FOLDERS, ids=ascii)
def test_a_bug_is_found_in_a_folder_with_any_name(tmp_path: Path, empty: Path, name: str) -> None:
    project = write_project(tmp_path / name)
    done = inject(project, empty, Machine(env=ASCII), given=project.name)
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr
    assert done.stdout.isascii()
    assert bugs(project) == 1


def test_a_bug_is_found_through_a_link(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    (tmp_path / "link").symlink_to(project)
    done = inject(project, empty, Machine(), given=".", cwd=tmp_path / "link")
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr
    assert bugs(project) == 1


def test_files_that_hold_no_bytes_are_left_out(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    os.mkfifo(project / "pipe")
    (project / "dangling").symlink_to("missing")
    with socket.socket(socket.AF_UNIX) as bound, pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        bound.bind("socket")
    done = inject(project, empty, Machine())
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr


@pytest.mark.parametrize("time_s", [0, 7_000_000_000], ids=["1970", "2191"])
def test_the_times_of_files_do_not_matter(tmp_path: Path, empty: Path, time_s: int) -> None:
    project = write_project(tmp_path / "project")
    for path in (*project.iterdir(), project):
        os.utime(path, (time_s, time_s))
    assert inject(project, empty, Machine()).returncode == ExitCode.DONE


def is_one_line(done: subprocess.CompletedProcess[str], *words: str) -> bool:
    """Return whether a command wrote one line on standard error, with these words."""
    lines = done.stderr.strip().splitlines()
    return len(lines) == 1 and all(word in lines[0] for word in ("ssr: ", *words))


def test_a_file_that_fills_no_disk_is_named(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    try:
        os.truncate(os.open(project / "huge.bin", os.O_CREAT | os.O_WRONLY), 64 << 30)
    except OSError:
        pytest.skip("this disk has no sparse files")
    done = inject(project, empty, Machine())
    assert done.returncode == ExitCode.USAGE
    assert is_one_line(done, "huge.bin", ".gitignore")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    (project / "secret.txt").touch(0o000)
    done = inject(project, empty, Machine(UNKNOWN_USER))
    assert done.returncode == ExitCode.USAGE
    assert is_one_line(done, "secret.txt")


def test_a_current_folder_that_was_removed_is_named(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    done = inject(project, empty, Machine(script='cd "$1"; rmdir "$1"'))
    assert done.returncode == ExitCode.USAGE
    assert is_one_line(done, "current folder")


READ_ONLY = 'mount --bind "$PROJECT" "$PROJECT"; mount -o remount,ro,bind "$PROJECT"'
FULL = 'mount -t tmpfs -o size=16k ssr "$1"; head -c 1M /dev/zero 2>&- >"$1/x"'


def test_a_project_that_cannot_be_written_needs_another_store(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    machine = Machine(MAY_MOUNT, READ_ONLY, {"PROJECT": str(project)})
    done = inject(project, empty, machine)
    assert done.returncode == ExitCode.BROKEN
    assert is_one_line(done, "read-only", "--store")
    done = inject(project, empty, machine, f"--store={empty / 'store'}")
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr


def test_a_full_disk_is_named(tmp_path: Path, empty: Path) -> None:
    project = write_project(tmp_path / "project")
    done = inject(project, empty, Machine(MAY_MOUNT, FULL), f"--store={empty / 'store'}")
    assert done.returncode == ExitCode.USAGE
    assert is_one_line(done, "--store")


def test_reading_reserves_no_more_memory_than_a_file_needs(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    assert PlainFiles(tmp_path).read("small", 1 << 45) == b"abc"
