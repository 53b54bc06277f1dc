"""Keep what takes long to compute: the pages of sums read whole tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
_WORTH_S = 0.05
"""What is computed faster is computed for each request."""
_SHARE = 20
"""A value is used for this many times as long as its computation took, so that sums take a twentieth of the time."""
_MOST = 50


@dataclass(slots=True)
class _Value:
    value: Any
    until: float


@dataclass(slots=True)
class Kept:
    """Values by name. Safe for threads: while one computes a value again, the others use the one before."""

    _values: dict[str, _Value] = field(default_factory=dict)
    _computing: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str, compute: Callable[[], T]) -> T:
        """Return a value; its exceptions are not kept."""
        with self._lock:
            kept = self._values.get(name)
            computing = self._computing.setdefault(name, threading.Lock())
        if kept is not None and (time.monotonic() < kept.until or not computing.acquire(blocking=False)):
            value: T = kept.value
            return value
        if kept is None:
            computing.acquire()
        try:
            return self._compute(name, compute)
        finally:
            computing.release()
            with self._lock:
                self._computing.pop(name, None)

    def _compute(self, name: str, compute: Callable[[], T]) -> T:
        start = time.monotonic()
        value = compute()
        took = time.monotonic() - start
        with self._lock:
            if took < _WORTH_S:
                self._values.pop(name, None)
            else:
                if len(self._values) >= _MOST:
                    # Names of campaigns come from requests.
                    self._values.clear()
                self._values[name] = _Value(value, start + took + _SHARE * took)
        return value
