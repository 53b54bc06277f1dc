"""Provide one lock for each run in progress."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Hashable, Iterator

from pytest_ssr.interrupts import POLL_S, raise_if_stopped


class Locks:
    """One lock for each run in progress: of two threads that need the same run, only one makes it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._users: Counter[Hashable] = Counter()

    @contextlib.contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of a key; a second thread waits for it, and stops waiting at an interrupt."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
            self._users[key] += 1
        try:
            while not lock.acquire(timeout=POLL_S):
                raise_if_stopped()
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key], self._locks[key]
