"""Read the log that `guest/reach_probe.py` writes while tests run; a truncated log holds what came before the cut."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ssr.source.function_diff import Spot

IMPORT_HOLDER = "import"


@dataclass(slots=True)
class CoverageLog:
    """The statements that one run reached, by holder."""

    spots: list[tuple[str, Spot]] = field(default_factory=list)
    """Path, then line and column of each watched statement; the other fields refer to them by index."""
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
    """Whether the run wrote its last record."""

    def statements(self, sets: Collection[int]) -> set[int]:
        """Return the indices of the statements in some sets."""
        return {spot for index in sets for spot in self.sets[index]}

    @classmethod
    def parse(cls, raw: bytes) -> CoverageLog:
        """Parse a log; skip lines that are torn or that the probe did not write."""
        log = cls()
        for line in raw.splitlines():
            try:
                log._add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
        log.sets = [[i for i in indices if 0 <= i < len(log.spots)] for indices in log.sets]
        log.reached = {h: {i for i in sets if 0 <= i < len(log.sets)} for h, sets in log.reached.items()}
        return log

    def _add(self, record: Mapping[str, Any]) -> None:
        if "spots" in record:
            self.spots += [(str(path), (int(line), int(column))) for path, line, column in record["spots"]]
        elif "set" in record:
            self.sets.append([int(index) for index in record["set"]])
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
