"""A control group for one command, where this user may make one: the kernel keeps limits that are otherwise sampled.

Version 2 (the unified hierarchy) and version 1 are both used as they are found (cgroups(7)). A group is made below our
own or beside it; whether that works is tried once in each process.
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
HERE = "\0groups"
_MOST_KILLS = 50
_SLACK_BYTES, _SLACK_PROCESSES = 64 * MIB, 64
_JOIN = 'for file; do shift; [ "$file" = -- ] && break; echo 0 > "$file" || exit 125; done; exec "$@"'
_numbers = itertools.count()
_leaving: collections.deque[Path] = collections.deque()
_killed_by_the_machine: list[float] = []


class Group:
    """The group of one command: its processes and threads, and its memory, files in memory among it."""

    def __init__(self, limits: Limits) -> None:
        """Raises OSError where it cannot be made."""
        self._folders: list[Path] = []
        most = str(limits.memory_bytes + limits.disk_bytes + _SLACK_BYTES)
        values = {
            "pids.max": str(limits.processes + _SLACK_PROCESSES),
            "memory.max" if _is_unified() else "memory.limit_in_bytes": most,
        }
        try:
            for folder in _places():
                folder /= f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
                folder.mkdir()
                self._folders.append(folder)
            for place, (name, value) in enumerate(values.items()):
                (self._folders[min(place, len(self._folders) - 1)] / name).write_text(value)
        except OSError:
            self.remove()
            raise

    @property
    def doors(self) -> list[str]:
        """The files to which a process writes its number, or 0, to enter."""
        return [str(f / "cgroup.procs") for f in self._folders]

    def passed(self) -> Limit | None:
        """Return the limit that the kernel has kept: it has killed for want of memory, or refused a process."""
        if self._told("oom_kill", "memory.events", "memory.oom_control"):
            full = self._told("oom", "memory.events") or self._told("", "memory.failcnt")
            peak = max(self._told("", "memory.peak"), self._told("", "memory.max_usage_in_bytes"))
            return killed(by_limit=full or peak > _memory() // 2)
        return Limit.PROCESSES if self._told("max", "pids.events") else None

    def within(self, limits: Limits) -> bool:
        """Whether the kernel counts no more processes and memory than the limits allow; False in doubt."""
        processes = self._told("", "pids.current")
        memory = self._told("", "memory.current", "memory.usage_in_bytes")
        return 0 < processes <= limits.processes and 0 < memory <= limits.memory_bytes

    def _kill(self) -> None:
        """End what has left its parents and its environment behind, and can be known by the group alone."""
        for _ in range(_MOST_KILLS):
            left: set[int] = set()
            for folder in self._folders:
                with contextlib.suppress(OSError, ValueError):
                    left |= {int(word) for word in (folder / "cgroup.procs").read_text().split()}
            if not left - {0, os.getpid()}:
                return
            for pid in left - {0, os.getpid()}:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _told(self, key: str, *names: str) -> int:
        for path in (folder / name for folder in self._folders for name in names):
            with contextlib.suppress(OSError, ValueError):
                # A file with a single number has no key.
                words = dict(line.rpartition(" ")[::2] for line in path.read_text().splitlines())
                return int(words.get(key, 0))
        return 0

    def remove(self) -> None:
        """Kill what is left in it, and remove it: at once or, as the dead take a moment, before the next is made."""
        self._kill()
        _leaving.extend(self._folders)
        self._folders = []
        sweep()


def killed(*, by_limit: object) -> Limit:
    """Return which limit it was that made the kernel kill a process of a run, and count it where it was not its own."""
    if by_limit:
        return Limit.MEMORY
    _killed_by_the_machine.append(time.monotonic())
    return Limit.MACHINE_MEMORY


def kills_for_memory() -> int:
    """Return how often the kernel has killed, for want of memory of this machine, a process of runs of ours.

    Where there are no control groups to tell whose processes they were: any process. 0 where the kernel tells nothing.
    """
    if usable():
        return len(_killed_by_the_machine)
    with contextlib.suppress(OSError, ValueError):
        words = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(words.get("oom_kill", 0))
    return 0


def entered(group: Group | None, command: Sequence[str]) -> list[str]:
    """Return a command that enters a group before it does anything else.

    Where `HERE` is among the words, the command enters by itself, and gets the group's doors instead of that word.
    """
    doors = group.doors if group is not None else []
    if HERE in command:
        at = list(command).index(HERE)
        return [*command[:at], *doors, *command[at + 1 :]]
    return ["/bin/sh", "-c", _JOIN, "sh", *doors, "--", *command] if doors else list(command)


def sweep(*, patience_s: float = 0.0) -> None:
    """Remove the groups that are no longer used, as far as they are empty."""
    for _ in range(len(_leaving)):
        with contextlib.suppress(IndexError):
            folder = _leaving.popleft()
            if not _remove(folder, patience_s=patience_s):
                _leaving.append(folder)


def made(limits: Limits) -> Group | None:
    """Return a new group, or None where this user can make none."""
    if usable():
        with contextlib.suppress(OSError):
            return Group(limits)
    return None


@functools.cache
def _memory() -> int:
    """Return the memory there is for us: what takes more than half of that has itself to blame when there is no more.

    The machine's, or what a group above ours may take, where that is less.
    """
    found = [1 << 62]
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(int(dict(line.split(":", 1) for line in lines)["MemTotal"].split()[0]) * 1024)
    with contextlib.suppress(OSError):
        for folder in _places():
            for above in (folder, *folder.parents):
                for name in ("memory.max", "memory.limit_in_bytes"):
                    with contextlib.suppress(OSError, ValueError):
                        found.append(int((above / name).read_text()))
    return min(found)


@functools.cache
def usable() -> bool:
    """Run a command in a group, once in each process."""
    try:
        group = Group(Limits())
    except OSError:
        return False
    try:
        done = subprocess.run(entered(group, ["true"]), capture_output=True, check=False, timeout=30)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        group.remove()


def reap() -> None:
    """Remove the groups of processes that are gone."""
    with contextlib.suppress(OSError):
        for folder in (f for place in _places() for f in place.glob(f"{_PREFIX}*-*")):
            pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                _remove(folder, patience_s=0.0)


def _remove(folder: Path, *, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            folder.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.005)


@functools.cache
def _is_unified() -> bool:
    return (_TOP / "cgroup.controllers").exists()


def _places() -> Iterator[Path]:
    """Yield the directories in which groups are made: one for all controllers, or one each for pids and memory."""
    if not _is_unified():
        for name in ("pids", "memory"):
            yield _TOP / name / _path_of(name).lstrip("/")
        return
    place = _TOP / _path_of("").lstrip("/")
    # A group with processes of its own gives no controllers to those below, but for the topmost.
    for folder in (place, place.parent):
        given = (folder / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(given):
            yield folder
            return
    raise OSError(f"no control group above {place} gives memory and pids to those below")


def _path_of(controller: str) -> str:
    for line in _OWN.read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    raise OSError(f"there is no hierarchy for {controller}")


atexit.register(sweep, patience_s=2.0)
