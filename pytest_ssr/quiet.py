"""Warnings about other people's source text, kept from the user; Python's filters are for all threads at once."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator

_recording = threading.RLock()


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record all warnings instead of showing them."""
    with _recording, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found
