"""Run units in threads of this process, whose sandboxes are the processes that do the work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.executors.protocol import Runnable
from pytest_ssr.interrupts import workers

_A = TypeVar("_A")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs up to `jobs` units at a time; the default executor."""

    jobs: int = 1
    is_remote: bool = False
    nodes: tuple[()] = ()

    @contextmanager
    def units(self, work: Runnable[_A, _R]) -> Iterator[LocalUnits[_A, _R]]:
        """Yield the units of a work; see Executor."""
        with workers(self.jobs) as pool:
            yield LocalUnits(work, pool, self.jobs)


@dataclass(frozen=True, slots=True)
class LocalUnits(Generic[_A, _R]):
    """Units in a pool of threads."""

    work: Runnable[_A, _R]
    pool: ThreadPoolExecutor
    slots: int

    def submit(self, argument: _A) -> Future[_R]:
        """Start a unit as soon as a thread is free."""
        return self.pool.submit(self.work.run, argument)
