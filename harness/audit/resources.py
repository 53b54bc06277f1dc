"""Measure what a grade of a task costs, and what its audit does."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from harness.audit.card import Cost
from harness.audit.soundness import run_task_tests
from harness.datasets.instance_task import InstanceTask
from pytest_ssr.sandbox.protocol import MIB

_KIB_OF_MIB = 1024


def cost_of(task: InstanceTask) -> Cost:
    """Return what one run of a task's tests with the solution costs; raises SandboxError.

    The memory is the most that one process uses, and unknown for a row's own command. The tests write the figure
    themselves, so that nothing but a cost is read from it.
    """
    snapshot = task.runner.snapshot
    size = sum((snapshot.directory / path).lstat().st_size for path in snapshot.files)
    with task.runner.open(task.runner.original) as sandbox:
        path = f"{sandbox.scratch}/ssr-memory"
        sandbox.write(path, b"")
        run = run_task_tests(task, sandbox, env={"SSR_MEMORY": path}, guests=("memory_probe",))
        kib = sandbox.read(path, max_bytes=64)
    memory_mib = round(int(kib) / _KIB_OF_MIB, 1) if kib.isdigit() else None
    return Cost(round(run.seconds, 3), memory_mib, round(size / MIB, 3))


def cpu_s(root: int | None = None) -> float:
    """Return the CPU seconds so far of a process, its descendants, and all that these have waited for.

    What runs in sandboxes is waited for by processes that live on, so that the figure of this process alone lacks it.
    root: None for this process. Without /proc, only what this process has waited for is known.
    """
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        used[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        children.setdefault(int(fields[1]), []).append(pid)
    if not used:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)
    total, waiting = 0.0, [os.getpid() if root is None else root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total
