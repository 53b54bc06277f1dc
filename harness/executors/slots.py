"""Measure how many sandboxes a machine can run at the same time."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ssr.sandbox.protocol import MIB

SLOT_BYTES = 1536 * MIB
"""Memory for one slot: a worker, a warm process of pytest, and a suite; large suites need more."""
_CGROUP, _MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")


def measured_slots() -> int:
    """Return the number of slots of this machine, by its cores and free memory, within the limits of its container."""
    return max(1, min(_cores(), _free_bytes() // SLOT_BYTES))


def _cores() -> int:
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(quota) // int(period))) if quota.isdigit() and period.strip().isdigit() else cores


def _free_bytes() -> int:
    lines = dict(line.split(":", 1) for line in _read(_MEMINFO).splitlines() if ":" in line)
    if "MemAvailable" not in lines:
        # Other systems do not say how much of it is free.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if not limit.isdigit() or not used.isdigit():
        return free
    counts = dict(line.split() for line in _read(_CGROUP / "memory.stat").splitlines())
    # What the kernel keeps of files that nobody uses makes room at once.
    return min(free, int(limit) - int(used) + int(counts.get("inactive_file", 0)))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
