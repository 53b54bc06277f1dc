"""Run trials in order, several at a time, until a goal is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Protocol, TypeVar

from pytest_ssr.interrupts import POLL_S, TimeBudgetError, is_stopped
from pytest_ssr.records.candidate_result import CandidateResult, Goal

A_contra = TypeVar("A_contra", contravariant=True)
R = TypeVar("R")
GIVE_UP_AFTER = 60
"""Candidates to try for each wanted bug, if no model proposes them."""
PER_CHANGE = 3
"""Candidates for each change to try: some time out, and some are not exercised."""


class Attempts(Protocol):
    """A source of candidate results by index."""

    def take(self, result: CandidateResult) -> None:
        """Publish the artifact of a result that has arrived, until `settle` decides."""

    def settle(self, wanted: Sequence[CandidateResult], results: Sequence[CandidateResult]) -> None:
        """Publish the artifacts of the wanted results."""

    def end(self) -> None:
        """Start no more trials; running trials may stop early."""


class Units(Protocol[A_contra, R]):
    """Units of work that are under way."""

    @property
    def slots(self) -> int:
        """How many are worth being under way at the same time; it changes as machines come and go."""

    def submit(self, argument: A_contra, /) -> Future[R]:
        """Start a unit, or let it wait for a free worker; a future that is cancelled stops its unit."""


def run_candidates(
    source: Attempts,
    goal: Goal,
    *,
    units: AbstractContextManager[Units[int, CandidateResult | None]],
    most: int,
    report: Callable[[CandidateResult], None] = lambda _: None,
    progress: Callable[[Sequence[CandidateResult]], None] = lambda _: None,
    only: Callable[[Sequence[CandidateResult]], list[CandidateResult]] = list,
) -> list[CandidateResult]:
    """Return the results up to the one that reaches the goal, in order of their index, at most `most` of them.

    A goal with indices decides alone which candidates are tried.

    units: make the attempts at the source's candidates, by their index: a result that is stored or new, None past the
    last one. report: called with each result, in order, once all results
    before it are there. progress: called with the results in order so far. only: filters out results that do not count.
    """
    done: dict[int, CandidateResult] = {}
    running: set[Future[CandidateResult | None]] = set()
    order = goal.indices if goal.indices is not None else range(most)
    following, last, reported = 0, len(order), 0
    with units as started:
        try:
            while True:
                prefix = goal.prefix(only(_unbroken(done, order)))
                for result in prefix[reported:]:
                    report(result)
                reported = len(prefix)
                enough = goal.is_reached(prefix)
                while not enough and len(running) < started.slots and following < last:
                    try:
                        running.add(started.submit(order[following]))
                    except TimeBudgetError:
                        # The budget ended while the attempt was prepared.
                        last = following
                        break
                    following += 1
                if enough or not running:
                    break
                progress(prefix)
                finished, running = wait(running, POLL_S, return_when=FIRST_COMPLETED)
                if is_stopped() and not finished:
                    break
                for future in finished:
                    new = future.result()
                    if new is None:
                        last = following
                    else:
                        source.take(new)
                        done[new.index] = new
        finally:
            source.end()
        late = [f.result() for f in running if not f.cancel()]
    done |= {a.index: a for a in late if a is not None}
    if is_stopped():
        # The end of the time budget leaves gaps in the order: every finished result counts.
        prefix = goal.prefix(only([done[i] for i in sorted(done)]))
        for result in prefix[reported:]:
            report(result)
    source.settle(prefix, list(done.values()))
    return prefix


def _unbroken(done: Mapping[int, CandidateResult], order: range) -> list[CandidateResult]:
    """Return the results from the first index of the order up to the first that is still missing."""
    return [done[i] for i in takewhile(done.__contains__, order)]
