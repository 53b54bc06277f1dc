"""Candidates tried in order, several at a time, until as many as wanted are valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import takewhile
from typing import Protocol

from pytest_ssr.attempt import Attempt, AttemptStatus, counted
from pytest_ssr.stopping import is_stopped, workers

GIVE_UP_AFTER = 60
"""Candidates without a model that are tried for each bug that is wanted."""


class Attempts(Protocol):
    """What makes attempts by their numbers."""

    def attempt(self, index: int) -> Attempt | None:
        """Return an attempt, made now or before; None past the last one."""

    def settle(self, wanted: Sequence[Attempt], made: Sequence[Attempt]) -> None:
        """Keep the artifacts of the wanted ones."""

    def end(self) -> None:
        """Make no more: attempts that are under way may give up."""


def tried(
    source: Attempts,
    count: int,
    *,
    jobs: int,
    most: int,
    tell: Callable[[Attempt], None] = lambda _: None,
    progress: Callable[[Sequence[Attempt]], None] = lambda _: None,
    only: Callable[[Sequence[Attempt]], list[Attempt]] = list,
) -> list[Attempt]:
    """Return the attempts up to the `count`-th valid one, in their order, `most` of them at the most.

    tell: is told each of them, in order, when those before it are there. progress: those in order so far. only: leaves
    out what does not count.
    """
    done: dict[int, Attempt] = {}
    running: set[Future[Attempt | None]] = set()
    following, last, told = 0, most, 0
    with workers(jobs) as pool:
        try:
            while True:
                prefix = counted(only(_unbroken(done)), count)
                for attempt in prefix[told:]:
                    tell(attempt)
                told = len(prefix)
                enough = sum(a.status is AttemptStatus.VALID for a in prefix) >= count
                while not enough and len(running) < jobs and following < last:
                    running.add(pool.submit(source.attempt, following))
                    following += 1
                if enough or not running:
                    break
                progress(prefix)
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for made in (f.result() for f in finished):
                    if made is None:
                        last = following
                    else:
                        done[made.index] = made
        finally:
            source.end()
        late = [f.result() for f in running if not f.cancel()]
    done |= {a.index: a for a in late if a is not None}
    if is_stopped():
        # What the budget of time has cut off leaves gaps: all that is finished counts.
        prefix = counted(only([done[i] for i in sorted(done)]), count)
        for attempt in prefix[told:]:
            tell(attempt)
    source.settle(prefix, list(done.values()))
    return prefix


def _unbroken(done: Mapping[int, Attempt]) -> list[Attempt]:
    """Return the attempts from the first on, up to the first that is not there yet."""
    return [done[i] for i in takewhile(done.__contains__, range(len(done)))]
