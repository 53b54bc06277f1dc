"""The memory of a process and of all processes below it, sampled twice a second.

Counted is the sum of their proportional shares: a page that several processes share is divided among them. What a
container engine runs is not below the process, and is not counted.
"""

from __future__ import annotations

import threading
from pathlib import Path

_LOOK_S = 0.5


class MemoryWatch:
    """Watches the memory of a process and of all below it, in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.peak_bytes = max(self.peak_bytes, sum(map(proportional_bytes, process_tree(self._pid))))


def process_tree(root: int) -> list[int]:
    """Return the ids of a process and of all processes below it."""
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
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def proportional_bytes(pid: int) -> int:
    """Return the memory of one process, each page divided by the number of processes that share it."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    line = next((row for row in rollup.splitlines() if row.startswith("Pss:")), "Pss: 0 kB")
    return int(line.split()[1]) * 1024
