"""What a running command uses, read from `/proc`: processes, threads, resident memory; and how to end all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its descendants use now."""

    pids: frozenset[int]
    """The processes alive."""
    threads: int
    """Their threads."""
    resident_bytes: int
    """Their resident memory together."""


def usage_of(root: int, marker: str = "") -> Usage:
    """Sample a process tree; orphans count when their environment holds `marker`."""
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            raw = Path(f"/proc/{name}/stat").read_bytes()
            fields = raw[raw.rindex(b")") + 2 :].split()
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)], threads[int(name)] = int(fields[1]), int(fields[17])
    pids = {p for p in parents if p == root or (marker and parents[p] <= 1 and _marked(p, marker))}
    grown = True
    while grown:
        more = {p for p, parent in parents.items() if parent in pids} - pids
        grown = bool(more)
        pids |= more
    resident = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    return Usage(frozenset(pids), sum(threads[p] for p in pids), resident)


def _marked(pid: int, marker: str) -> bool:
    with contextlib.suppress(OSError):
        return marker.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def kill_all(root: int, marker: str = "") -> None:
    """Kill a process, its group, its descendants and its marked orphans, until none is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)
    for _ in range(200):
        pids = usage_of(root, marker).pids
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def disk_bytes(*folders: Path) -> int:
    """Return the bytes that the files below these folders take, without following links."""
    total = 0
    for folder in folders:
        for top, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += (Path(top) / name).lstat().st_blocks * 512
    return total
