"""Start programs as root of a user namespace with all the users that a container has.

Root maps every user to itself. Another user is mapped to the container's root, and the numbers above it to those that
the system has set aside for that user (subuid(5)); without them, a container could not have a second user.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SandboxError, SandboxUnavailableError

GUEST = Path(__file__).parent / "guest"
HOST_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_PYTHON = (sys.executable, "-I", "-S")


def guest_command(name: str) -> list[str]:
    """Return the command that runs a program of `guest`."""
    return [*_PYTHON, str(GUEST / f"{name}.py")]


def start(do: str, folder: Path, told: Mapping[str, Any], *, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a task of `guest/namespaces.py` in a folder; its output is a pipe.

    Raises SandboxUnavailableError if this user cannot have such a namespace.
    """
    task = json.dumps({**told, "do": do, "folder": str(folder)})
    process = subprocess.Popen(
        [*guest_command("namespaces"), task],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=HOST_ENV,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        if first != b"ready\n":
            rest = (first + process.stdout.read()).decode(errors="replace").strip().splitlines()
            raise SandboxUnavailableError(
                f"no user namespace can be created: {rest[-1] if rest else 'no reason given'}"
            )
        _map_users(process.pid)
        process.stdin.write(b"\n")
        process.stdin.close()
    except BaseException:
        process.kill()
        process.wait()
        process.stdout.close()
        raise
    return process


def run(do: str, folder: Path, told: Mapping[str, Any]) -> None:
    """Run a task of `guest/namespaces.py`; raises SandboxError if it fails."""
    process = start(do, folder, told)
    assert process.stdout is not None
    with process.stdout:
        lines = process.stdout.read().decode(errors="replace").strip().splitlines()
    if process.wait():
        raise SandboxError(f"a container's files cannot be written: {lines[-1] if lines else process.returncode}")


def remove(folder: Path) -> None:
    """Remove a folder with files of any user of the namespace."""
    if folder.is_dir():
        run("remove", folder, {})
        shutil.rmtree(folder, ignore_errors=True)


def _map_users(pid: int) -> None:
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        if os.geteuid() == 0:
            ranges = [line.split() for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
            lines = "\n".join(f"{first} {first} {count}" for first, _, count in ranges)
            Path(f"/proc/{pid}/{kind}_map").write_text(lines)
            continue
        first, count = _set_aside(kind)
        program = shutil.which(f"new{kind}map")
        if program is None:
            raise SandboxUnavailableError(f"new{kind}map is not installed; install it: apt-get install uidmap")
        done = subprocess.run(
            [program, str(pid), "0", str(own), "1", "1", str(first), str(count)], capture_output=True, check=False
        )
        if done.returncode:
            raise SandboxUnavailableError(f"new{kind}map fails: {done.stderr.decode(errors='replace').strip()}")


def _set_aside(kind: str) -> tuple[int, int]:
    """Return the numbers that this user may give to others in a namespace: the first, and how many."""
    file = Path(f"/etc/sub{kind}")
    names = {str(os.getuid()), getpass.getuser()}
    rows = [line.split(":") for line in file.read_text().splitlines()] if file.is_file() else []
    for name, first, count in (row for row in rows if len(row) == 3):
        if name in names:
            return int(first), int(count)
    raise SandboxUnavailableError(
        f"{file} sets no numbers aside for this user, and a container has several users; as root: usermod "
        f"--add-sub{kind}s 100000-165535 {getpass.getuser()}"
    )
