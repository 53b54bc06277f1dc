"""What rows of static bugs teach a model."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The part of a model in self-play."""

    SOLVER = "solver"
    """It is shown the buggy lines, and writes the original ones."""
    INJECTOR = "injector"
    """It is shown the original lines, and writes the buggy ones."""
