"""Measure the processes, threads and memory of a running command and kill all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ssr.sandbox.protocol import Limit, Limits
from pytest_ssr.sandbox.supervision import process_table
from pytest_ssr.sandbox.supervision.cgroup import Group

_ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Usage:
    """The current resource usage of a command and its descendants."""

    pids: frozenset[int]
    """The living processes."""
    threads: int
    """The number of their threads."""
    resident_bytes: int
    """The total of their resident memory; a page shared by several processes counts for each."""


class Descendants:
    """All descendants of a process, including orphans that were seen before or that carry the marker."""

    def __init__(self, root: int, marker: bytes = b"") -> None:
        self._root, self._marker = root, marker
        self._seen: dict[int, int] = {}
        self._unclear = {root}
        self._is_listed = True
        """Whether the last look could list the processes."""
        self._last = Usage(frozenset(), 0, 0)
        entry = process_table.entry_of(root)
        self._since = entry.started if entry else 0

    def usage(self) -> Usage:
        """Sample the usage of the processes; it is that of the last look if they cannot be listed."""
        found = process_table.listed()
        self._is_listed = found is not None
        if found is None:
            return self._last
        entries = {p: e for p, e in found.items() if e is not None and not e.ended}
        self._unclear = {p for p, e in found.items() if e is None or (e.ended and e.started >= self._since)}
        pids = {p for p, e in entries.items() if p == self._root or self._seen.get(p) == e.started}
        if self._marker:
            # Processes older than the command cannot belong to it, so most environments need not be read.
            young = (p for p, e in entries.items() if e.started >= self._since and p not in pids)
            pids |= {p for p in young if self._marked(p)}
        children = pids
        while children:
            children = {p for p, e in entries.items() if e.parent in children} - pids
            pids |= children
        self._seen = {p: entries[p].started for p in pids if p in entries}
        alive = [entries[p] for p in self._seen]
        self._last = Usage(frozenset(self._seen), sum(e.threads for e in alive), sum(e.resident_bytes for e in alive))
        return self._last

    def exceeded_limit(self, limits: Limits, group: Group | None) -> Limit | None:
        """Return the limit of processes or memory that is exceeded now; none if the group is within its limits."""
        if group is not None and group.within(limits):
            return None
        usage = self.usage()
        if usage.threads > limits.processes:
            return Limit.PROCESSES
        if usage.resident_bytes > limits.memory_bytes and self.proportional_bytes() > limits.memory_bytes:
            return Limit.MEMORY
        return None

    def proportional_bytes(self) -> int:
        """Return the memory in bytes with shared pages counted once; the resident memory if that is unknown."""
        return sum(process_table.proportional_bytes(pid) for pid in self.usage().pids)

    def kill(self) -> None:
        """Kill the processes, and what they start in the meantime, until none is left.

        A process that ended, or became another program, while the list was read may have started one that was not
        listed yet, so the last look has met no such process that the look before it had not met.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._root, signal.SIGKILL)
        for _ in range(_ROUNDS):
            before = self._unclear
            pids = self.usage().pids
            if self._is_listed and not pids and self._unclear <= before:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if pids or not self._is_listed:
                time.sleep(0.003)

    def _marked(self, pid: int) -> bool:
        try:
            variables = process_table.environment_of(pid)
        except PermissionError:
            return False
        if not variables:
            self._unclear.add(pid)
        return self._marker in variables


def kill_marked(marker: bytes) -> None:
    """Kill every process with the marker in its environment or command line, except this one and its ancestors."""
    for _ in range(_ROUNDS):
        count, found = 0, process_table.listed()
        own = _own(found or {})
        for pid, entry in (found or {}).items():
            if pid in own or entry is None or entry.ended:
                continue
            with contextlib.suppress(OSError):
                if marker in process_table.environment_of(pid) or marker in process_table.command_line_of(pid):
                    os.kill(pid, signal.SIGKILL)
                    count += 1
        if not count and found is not None:
            return
        time.sleep(0.003)


def _own(found: Mapping[int, process_table.ProcessEntry | None]) -> set[int]:
    """Return this process and its ancestors among the listed ones."""
    own, pid = set[int](), os.getpid()
    while pid > 0 and pid not in own:
        own.add(pid)
        entry = found.get(pid)
        pid = entry.parent if entry is not None else 0
    return own
