"""Bound what blind tests may use: the time of tests of copied files, and the space for values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyBound:
    """How long the tests of copied files may take, and how many tests share the space for values."""

    token: str
    """A part of the names of these files."""
    cpu_s: float
    """CPU seconds of one test; a function in C, which cannot be interrupted, ends the run after five times that."""
    tests: int = 0
    """The number of tests; 0 for those of the run. A run of some tests writes the same lines as a run of all."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the recorder reads."""
        return {"SSR_COPIES": self.token, "SSR_COPY_S": str(self.cpu_s), "SSR_TESTS": str(self.tests)}
