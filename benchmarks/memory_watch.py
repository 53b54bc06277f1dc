"""Sample the memory of a process and all its descendants twice a second.

The memory is the sum of their proportional shares: a page that several processes share is divided among them. Processes
that a container engine runs are not descendants and are not counted.
"""

from __future__ import annotations

import threading
from pathlib import Path

_INTERVAL_S = 0.5


class MemoryWatch:
    """Samples the memory of a process and all its descendants, in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            self.peak_bytes = max(self.peak_bytes, sum(map(proportional_bytes, process_tree(self._pid))))


def process_tree(root: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry.name))
    pids = [root]
    for pid in pids:
        pids.extend(children.get(pid, ()))
    return pids


def proportional_bytes(pid: int) -> int:
    """Return the memory of one process, each page divided by the number of processes that share it."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    line = next((row for row in rollup.splitlines() if row.startswith("Pss:")), "Pss: 0 kB")
    return int(line.split()[1]) * 1024
