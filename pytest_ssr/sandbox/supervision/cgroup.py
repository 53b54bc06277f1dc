"""Run each command in a control group, if this user may create one: the kernel enforces limits otherwise sampled.

Version 2 (the unified hierarchy) and version 1 are both supported (cgroups(7)). A group is created below our own or
beside it; whether that works is tested once in each process.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_ssr.sandbox.protocol import MIB, Limit, Limits

_TOP, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_PREFIX = "ssr-"
JOIN_FILES = "\0groups"
_KILL_ROUNDS = 50
_SLACK_BYTES, _SLACK_PROCESSES = 64 * MIB, 64
_JOIN = 'for file; do shift; [ "$file" = -- ] && break; echo 0 > "$file" || exit 125; done; exec "$@"'
_numbers = itertools.count()
_to_remove: collections.deque[Path] = collections.deque()
_machine_kills: list[float] = []


class Group:
    """The group of one command: limits its processes and threads, and its memory including files in memory."""

    def __init__(self, limits: Limits) -> None:
        """Create the group; raises OSError if that fails."""
        self._folders: list[Path] = []
        memory_max = str(limits.memory_bytes + limits.disk_bytes + _SLACK_BYTES)
        values = {
            "pids.max": str(limits.processes + _SLACK_PROCESSES),
            "memory.max" if _is_unified() else "memory.limit_in_bytes": memory_max,
        }
        try:
            for folder in _group_parents():
                folder /= f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
                folder.mkdir()
                self._folders.append(folder)
            for index, (name, value) in enumerate(values.items()):
                (self._folders[min(index, len(self._folders) - 1)] / name).write_text(value)
        except OSError:
            self.remove()
            raise

    @property
    def join_files(self) -> list[str]:
        """The files to which a process writes its pid, or 0, to join the group."""
        return [str(f / "cgroup.procs") for f in self._folders]

    def exceeded_limit(self) -> Limit | None:
        """Return the limit that the kernel has enforced by killing for memory or by refusing a process, if any."""
        if self._counter("oom_kill", "memory.events", "memory.oom_control"):
            reached = self._counter("oom", "memory.events") or self._counter("", "memory.failcnt")
            peak = max(self._counter("", "memory.peak"), self._counter("", "memory.max_usage_in_bytes"))
            return classify_kill(by_limit=reached or peak > _available_memory() // 2)
        return Limit.PROCESSES if self._counter("max", "pids.events") else None

    def within(self, limits: Limits) -> bool:
        """Return whether the kernel counts no more processes and memory than allowed; False if it is unknown."""
        processes = self._counter("", "pids.current")
        memory = self._counter("", "memory.current", "memory.usage_in_bytes")
        return 0 < processes <= limits.processes and 0 < memory <= limits.memory_bytes

    def _kill(self) -> None:
        """Kill processes that only the group identifies, as they have left their parents and environment."""
        for _ in range(_KILL_ROUNDS):
            pids: set[int] = set()
            for folder in self._folders:
                with contextlib.suppress(OSError, ValueError):
                    pids |= {int(word) for word in (folder / "cgroup.procs").read_text().split()}
            if not pids - {0, os.getpid()}:
                return
            for pid in pids - {0, os.getpid()}:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _counter(self, key: str, *names: str) -> int:
        for path in (folder / name for folder in self._folders for name in names):
            with contextlib.suppress(OSError, ValueError):
                # A file with a single number has no key.
                values = dict(line.rpartition(" ")[::2] for line in path.read_text().splitlines())
                return int(values.get(key, 0))
        return 0

    def remove(self) -> None:
        """Kill the remaining processes and remove the group: now or, as killed ones linger, at a later sweep."""
        self._kill()
        _to_remove.extend(self._folders)
        self._folders = []
        sweep()


def classify_kill(*, by_limit: object) -> Limit:
    """Return the limit for which the kernel killed a process of a run; count the kill if the limit was not its own."""
    if by_limit:
        return Limit.MEMORY
    _machine_kills.append(time.monotonic())
    return Limit.MACHINE_MEMORY


def oom_kill_count() -> int:
    """Return how often the kernel has killed a process of our runs because this machine ran out of memory.

    Without control groups, which show whose process it was, kills of all processes count. 0 if the kernel has no count.
    """
    if usable():
        return len(_machine_kills)
    with contextlib.suppress(OSError, ValueError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def join_command(group: Group | None, command: Sequence[str]) -> list[str]:
    """Return a command that joins a group before it does anything else.

    If `JOIN_FILES` is an argument, the command joins by itself, and the group's join files replace that argument.
    """
    files = group.join_files if group is not None else []
    if JOIN_FILES in command:
        index = list(command).index(JOIN_FILES)
        return [*command[:index], *files, *command[index + 1 :]]
    return ["/bin/sh", "-c", _JOIN, "sh", *files, "--", *command] if files else list(command)


def sweep(*, wait_s: float = 0.0) -> None:
    """Remove the groups that are no longer used and are empty."""
    for _ in range(len(_to_remove)):
        with contextlib.suppress(IndexError):
            folder = _to_remove.popleft()
            if not _remove(folder, wait_s=wait_s):
                _to_remove.append(folder)


def new_group(limits: Limits) -> Group | None:
    """Return a new group, or None if this user cannot create one."""
    if usable():
        with contextlib.suppress(OSError):
            return Group(limits)
    return None


@functools.cache
def _available_memory() -> int:
    """Return the memory available to us in bytes: that of the machine, or a lower limit of a group above ours.

    A command that uses more than half of it is held responsible when memory runs out.
    """
    bounds = [1 << 62]
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds.append(int(dict(line.split(":", 1) for line in lines)["MemTotal"].split()[0]) * 1024)
    with contextlib.suppress(OSError):
        for folder in _group_parents():
            for ancestor in (folder, *folder.parents):
                for name in ("memory.max", "memory.limit_in_bytes"):
                    with contextlib.suppress(OSError, ValueError):
                        bounds.append(int((ancestor / name).read_text()))
    return min(bounds)


@functools.cache
def usable() -> bool:
    """Return whether a command can be run in a group; tried once in each process."""
    try:
        group = Group(Limits())
    except OSError:
        return False
    try:
        done = subprocess.run(join_command(group, ["true"]), capture_output=True, check=False, timeout=30)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        group.remove()


def reap() -> None:
    """Remove the groups of processes that have ended."""
    with contextlib.suppress(OSError):
        for folder in (f for parent in _group_parents() for f in parent.glob(f"{_PREFIX}*-*")):
            pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                _remove(folder, wait_s=0.0)


def _remove(folder: Path, *, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            folder.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)


@functools.cache
def _is_unified() -> bool:
    return (_TOP / "cgroup.controllers").exists()


def _group_parents() -> Iterator[Path]:
    """Yield the directories in which groups are created: one for all controllers, or one each for pids and memory."""
    if not _is_unified():
        for name in ("pids", "memory"):
            yield _TOP / name / _path_of(name).lstrip("/")
        return
    own = _TOP / _path_of("").lstrip("/")
    # Except for the root, a group that contains processes cannot enable controllers for its children.
    for folder in (own, own.parent):
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(enabled):
            yield folder
            return
    raise OSError(f"neither the control group {own} nor its parent enables memory and pids for child groups")


def _path_of(controller: str) -> str:
    for line in _OWN.read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    raise OSError(f"no control group hierarchy has the controller {controller!r}")


atexit.register(sweep, wait_s=2.0)
