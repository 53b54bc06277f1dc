"""Define which tests a run executes, in which order, and when it stops; `guest/selection.py` applies it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Selection:
    """The tests of one run."""

    tests: Collection[str] | None = None
    """Ids of the tests to run; None: all that are collected."""
    files: Collection[str] = ()
    """Files whose tests are all run as well."""
    first: Sequence[str] = ()
    """The tests to run before the others, in this order."""
    leading: Collection[str] = ()
    """Tests to run before the others, in the order of collection."""
    first_files: Sequence[str] = ()
    """Files whose tests are run before those of others, in this order."""
    stop_after: int = 0
    """The number of failures after which the run stops; 0: never."""
    counted: Collection[str] | None = None
    """The only tests whose failures stop the run; None: all of them."""
    reports_collected: bool = False
    """Whether the run also reports the tests that were collected before the selection."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "tests": None if self.tests is None else sorted(self.tests),
            "files": sorted(self.files),
            "first": list(self.first),
            "leading": sorted(self.leading),
            "first_files": list(self.first_files),
            "stop_after": self.stop_after,
            "counted": None if self.counted is None else sorted(self.counted),
            "reports_collected": self.reports_collected,
        }
