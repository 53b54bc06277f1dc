"""Keep runs and their counts: each run is made once, also if several threads need it at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_ssr.execution.script import Parsed, StatusRun
from pytest_ssr.interrupts import POLL_S, raise_if_stopped
from pytest_ssr.records.test_run import SuiteRun


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


class RecordStore(Protocol):
    """Stores results beyond one run, as plain data, by everything that they depend on."""

    def get(self, *key: object) -> Mapping[str, Any] | None:
        """Return the stored data, or None."""

    def put(self, data: Mapping[str, Any], *key: object) -> None:
        """Store data, replacing the previous ones."""


class MemoryRecords:
    """Stores results for as long as this process runs."""

    def __init__(self) -> None:
        self._records: dict[tuple[object, ...], Mapping[str, Any]] = {}

    def get(self, *key: object) -> Mapping[str, Any] | None:
        """Return the stored data, or None."""
        return self._records.get(key)

    def put(self, data: Mapping[str, Any], *key: object) -> None:
        """Store data, replacing the previous ones."""
        self._records[key] = data


@dataclass(slots=True)
class RunCounts:
    """How many runs were made."""

    runs: int = 0
    """Runs of tests or scripts, in fresh processes and in forks."""
    forks: int = 0
    """Those in forks of warm processes."""


@dataclass(slots=True)
class RunCache:
    """Runs on the states of one snapshot."""

    suites: dict[tuple[object, ...], SuiteRun] = field(default_factory=dict)
    scripts: dict[tuple[object, ...], StatusRun] = field(default_factory=dict)
    screened: dict[str, SuiteRun] = field(default_factory=dict)
    """By the hash of a state's tree, the run of all tests that its changes can touch."""
    original_suites: dict[tuple[object, ...], SuiteRun] = field(default_factory=dict)
    original_scripts: dict[tuple[object, ...], StatusRun] = field(default_factory=dict)
    parsed: dict[tuple[bytes, bytes], Parsed] = field(default_factory=dict)
    memo: dict[tuple[object, ...], Any] = field(default_factory=dict)
    """What else is known of the original."""
    locks: Locks = field(default_factory=Locks)

    def scoped(self) -> RunCache:
        """Return a cache that shares the runs on the original."""
        return RunCache(
            original_suites=self.original_suites,
            original_scripts=self.original_scripts,
            parsed=self.parsed,
            memo=self.memo,
            locks=self.locks,
        )
