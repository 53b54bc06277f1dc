"""Hide warnings about other people's source from the user; all threads share Python's warning filters."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator

_recording = threading.RLock()


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record all warnings instead of showing them."""
    with _recording, warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield recorded
