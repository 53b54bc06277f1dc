"""Define how units of work are distributed: a work is opened once by each worker, and does one unit at a time.

An executor runs units in this process, or on other machines. A unit depends on nothing but its work and its argument,
and everything that it stores has a content key, so that it can be done anywhere and again. A lost worker costs one
attempt at a unit, which is repeated elsewhere; it never becomes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_ssr.campaign.parallel import A_contra, R, Units
from pytest_ssr.errors import SandboxError, SsrError
from pytest_ssr.interrupts import POLL_S, raise_if_stopped

if TYPE_CHECKING:
    from harness.executors.node import Node, NodeState
    from pytest_ssr.records.reasons import Reason

R_co = TypeVar("R_co", covariant=True)
_A = TypeVar("_A")
_R = TypeVar("_R")


LOCAL = "local"
TRIES = 4
"""How many workers a unit may lose before that becomes an error."""
_AHEAD = 2
"""How many units wait in the executor, so that a free worker has the next one at once."""


def is_remote(address: str) -> bool:
    """Return whether an address, as `--ray` takes it, names a cluster."""
    return address not in ("", LOCAL)


class WorkerLostError(SandboxError):
    """A unit lost its worker each time that it was begun: an infrastructure fault, never a result."""


class VersionsDifferError(SsrError):
    """A machine runs another version: its results would not be those of the run."""


class Runnable(Protocol[A_contra, R_co]):
    """Does units."""

    def run(self, argument: A_contra) -> R_co:
        """Do one unit and return its result; what it stores is in the store before it returns."""


class OpenWork(Runnable[A_contra, R], Protocol):
    """What a worker holds open to do units."""

    def fault(self, result: R) -> Reason | None:
        """Return the reason for a missing grade if the machine may be the cause, so that another one should try."""

    def close(self) -> None:
        """Release everything that was opened. Idempotent."""


Recipe = Callable[["Node"], OpenWork[Any, Any]]
"""Opens a work on another machine; it is pickled."""


class Work(OpenWork[A_contra, R], Protocol):
    """A work that is open in this process and can be opened elsewhere."""

    def stored(self, argument: A_contra) -> R | None:
        """Return the result of a unit if the store has it, so that no machine has to do it."""

    def place(self, argument: A_contra) -> str:
        """Return the name of what a unit needs besides the work, such as an image: a machine that had it is faster."""

    def ahead(self, argument: A_contra) -> Callable[[Node], object] | None:
        """Return what a machine can do for a unit while it runs others, such as pulling an image; None if nothing.

        It is pickled. If it fails, the unit itself reports the cause.
        """

    def send(self, argument: A_contra, cluster: Cluster) -> Any:
        """Return the argument in the form in which it is sent to another machine."""

    def recipe(self, cluster: Cluster) -> Recipe:
        """Return how a worker elsewhere opens the same work; called once, before its first unit is sent."""


class Cluster(Protocol):
    """What a recipe needs to know of the machines that use it."""

    @property
    def slots(self) -> int:
        """How many workers there are."""

    def put(self, name: str, pack: Callable[[], bytes]) -> Callable[[], bytes]:
        """Return a picklable function that returns large data, which a machine calls if it does not have the data.

        pack: returns the data, and is called if the name is new.
        """


def completed(units: Units[_A, _R], arguments: Iterable[_A]) -> Iterator[tuple[_A, Future[_R]]]:
    """Yield each argument with its ended future, as units end.

    Arguments are taken only when a worker is about to be free, so that millions of them need no memory.
    """
    waiting, following = dict[Future[_R], _A](), iter(arguments)
    exhausted = False
    while True:
        while not exhausted and len(waiting) < units.slots + _AHEAD:
            try:
                argument = next(following)
            except StopIteration:
                exhausted = True
            else:
                waiting[units.submit(argument)] = argument
        if not waiting:
            return
        for future in wait(waiting, POLL_S, return_when=FIRST_COMPLETED).done:
            yield waiting.pop(future), future
        raise_if_stopped()


def result_of(future: Future[_R]) -> _R:
    """Return the result of a unit, or raise its error; raises KeyboardInterrupt if this thread is to stop."""
    while wait([future], POLL_S).not_done:
        raise_if_stopped()
    return future.result()


class Executor(Protocol):
    """Runs units of works."""

    def units(self, work: Work[_A, _R], /) -> AbstractContextManager[Units[_A, _R]]:
        """Return a context in which units of a work can be submitted; it ends when all of them have ended.

        After an Exception, running units are finished and no others are started; after an interrupt, they are stopped.
        """

    @property
    def is_remote(self) -> bool:
        """Whether several works are worth being open at the same time, because one does not fill the workers."""

    @property
    def nodes(self) -> Sequence[NodeState]:
        """What each machine did; empty if this one does all."""
