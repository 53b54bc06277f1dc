"""Write a solve rate with its intervals, for the tables of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.training.search.rates import Rate


def rate_text(rate: Rate, *, digits: int = 2) -> str:
    """Return the rate and its 95 % intervals, by bug and, if there are several projects, by project."""
    intervals = [rate.by_bug, *([rate.by_project] if rate.by_project is not None else [])]
    return f"{rate.rate:.{digits}f} " + " ".join(f"({low:.{digits}f}-{high:.{digits}f})" for low, high in intervals)
