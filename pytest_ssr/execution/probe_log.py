"""What `guest/reach_probe.py` writes while tests run, read back; a log that was cut off holds what came before."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ssr.execution.change import Spot

IMPORT_HOLDER = "import"


@dataclass(slots=True)
class ProbeLog:
    """Which statements were reached, by whom, in one run."""

    spots: list[tuple[str, Spot]] = field(default_factory=list)
    """Path, then line and column of each statement that was watched; the others refer to them by index."""
    sets: list[list[int]] = field(default_factory=list)
    """Sets of statements."""
    reached: dict[str, set[int]] = field(default_factory=dict)
    """Holder (a test's id, `file PATH`, `all` or `import`) to the indices of the sets that it reached."""
    starts_processes: set[str] = field(default_factory=set)
    """Holders that started processes."""
    opens: dict[str, set[str]] = field(default_factory=dict)
    """Path of a file of the tree to the holders that opened it."""
    early: set[str] = field(default_factory=set)
    """Modules that were loaded before they could be watched."""
    is_complete: bool = False
    """Whether the run came to its end."""

    def places(self, sets: Collection[int]) -> set[int]:
        """Return the statements in some sets."""
        return {place for index in sets for place in self.sets[index]}

    @classmethod
    def parse(cls, raw: bytes) -> ProbeLog:
        """Read a log; lines that are torn or not the probe's are skipped."""
        log = cls()
        for line in raw.splitlines():
            try:
                log._add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
        log.sets = [[p for p in places if 0 <= p < len(log.spots)] for places in log.sets]
        log.reached = {h: {i for i in sets if 0 <= i < len(log.sets)} for h, sets in log.reached.items()}
        return log

    def _add(self, record: Mapping[str, Any]) -> None:
        if "spots" in record:
            self.spots += [(str(path), (int(line), int(column))) for path, line, column in record["spots"]]
        elif "set" in record:
            self.sets.append([int(place) for place in record["set"]])
        elif "reaches" in record:
            self.reached.setdefault(str(record["holder"]), set()).add(int(record["reaches"]))
        elif "starts_processes" in record:
            self.starts_processes.add(str(record["holder"]))
        elif "opens" in record:
            self.opens.setdefault(str(record["opens"]), set()).add(str(record["holder"]))
        elif "early" in record:
            self.early.add(str(record["early"]))
        elif "end" in record:
            self.is_complete = True
