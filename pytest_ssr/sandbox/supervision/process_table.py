"""List processes: by `/proc` (proc(5)) on Linux, by `ps` (ps(1)) on systems without it, such as macOS."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_PS_S = 10.0
_WITH_ENVIRONMENT = ("-E", "-ww") if sys.platform == "darwin" else ("eww",)


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A process."""

    parent: int
    threads: int
    """1 where `ps` does not show how many there are."""
    started: int
    """When it started, in units of the system; equal for a process in each listing."""
    resident_bytes: int
    ended: bool
    """Whether it is a zombie."""


@functools.cache
def has_proc() -> bool:
    """Return whether `/proc` shows processes; looked up once, because each listing asks for each process."""
    return os.path.exists("/proc/self/stat")


def entry_of(pid: int) -> ProcessEntry | None:
    """Return a process, or None if it does not exist."""
    return _entry_by_proc(pid) if has_proc() else _entries_by_ps("-p", str(pid)).get(pid)


def listed() -> dict[int, ProcessEntry | None] | None:
    """Return all processes by their ids, with None for one that ended while they were read.

    None if they cannot be listed: `ps` is a process itself, which the system may refuse when there are too many.
    """
    if not has_proc():
        return dict(_entries_by_ps("-A")) or None
    return {int(name): _entry_by_proc(int(name)) for name in os.listdir(_PROC) if name.isdigit()}


def environment_of(pid: int) -> bytes:
    """Return the environment of a process, empty if it has none or has ended.

    `ps` shows the command line as well. Raises PermissionError for a process of another user.
    """
    if not has_proc():
        return _run_ps(*_WITH_ENVIRONMENT, "-p", str(pid), "-o", "command=")[1]
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        raise
    except OSError:
        return b""


def command_line_of(pid: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    if not has_proc():
        return _run_ps("-ww", "-p", str(pid), "-o", "command=")[1]
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process with shared pages counted in part; the resident memory if that is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    entry = entry_of(pid)
    return entry.resident_bytes if entry and not entry.ended else 0


def _entry_by_proc(pid: int) -> ProcessEntry | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read()
        fields = raw[raw.rindex(b")") + 2 :].split()
        threads = int(fields[17])
        # A process whose main thread has ended is shown as a zombie while its other threads still run.
        ended = fields[0] in (b"Z", b"X") and threads < 2
        return ProcessEntry(int(fields[1]), threads, int(fields[19]), int(fields[21]) * _PAGE, ended)
    except (OSError, ValueError, IndexError):
        return None


def _entries_by_ps(*selection: str) -> dict[int, ProcessEntry]:
    """Return processes without the `ps` that lists them: it has always ended when the list is read."""
    entries: dict[int, ProcessEntry] = {}
    own, output = _run_ps(*selection, "-o", "pid=,ppid=,rss=,stat=,lstart=")
    for line in output.decode("ascii", "replace").splitlines():
        with contextlib.suppress(ValueError):
            pid, parent, resident, state, started = line.split(maxsplit=4)
            seconds = int(time.mktime(time.strptime(started.strip(), "%a %b %d %H:%M:%S %Y")))
            entries[int(pid)] = ProcessEntry(int(parent), 1, seconds, int(resident) * 1024, state.startswith("Z"))
    entries.pop(own, None)
    return entries


def _run_ps(*arguments: str) -> tuple[int, bytes]:
    """Return the id of the process `ps` and what it has printed; nothing if it fails."""
    try:
        with subprocess.Popen(
            ["ps", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        ) as process:
            try:
                return process.pid, process.communicate(timeout=_PS_S)[0]
            except subprocess.TimeoutExpired:
                process.kill()
    except OSError:
        pass
    return 0, b""
