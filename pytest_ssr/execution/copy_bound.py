"""Bound the time of the tests of copied files, which run beside the tests themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyBound:
    """How long the tests of copied files may take."""

    token: str
    """A part of the names of these files."""
    cpu_s: float
    """CPU seconds of one test; a function in C, which cannot be interrupted, ends the run after five times that."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the recorder reads."""
        return {"SSR_COPIES": self.token, "SSR_COPY_S": str(self.cpu_s)}
