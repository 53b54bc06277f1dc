"""Count the starts of sandboxes for a program that watches this one and its processes, such as a worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLE = "SSR_SANDBOX_COUNTS"
"""A folder whose files `starts` and `failures` get a byte for each; without it, nothing is counted."""
STARTS, FAILURES = "starts", "failures"


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Count the start of a sandbox in the block, or that it failed."""
    try:
        yield
    except Exception:
        _count(FAILURES)
        raise
    _count(STARTS)


def counts_in(folder: Path) -> Mapping[str, int]:
    """Return the counts of all processes that have counted in a folder."""
    counts = dict.fromkeys((STARTS, FAILURES), 0)
    for name in counts:
        with contextlib.suppress(OSError):
            counts[name] = (folder / name).stat().st_size
    return counts


def _count(name: str) -> None:
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    # A byte that is appended is never lost between processes, as a number that each reads and writes would be.
    with contextlib.suppress(OSError), open(os.path.join(folder, name), "ab", buffering=0) as file:
        file.write(b".")
