"""Run units on a Ray cluster: workers with a sandbox slot each, on every node that has some.

The driver keeps what waits and gives each free worker one unit, so that its memory does not grow with the number of
nodes' backlogs. A node is named by Ray's resource `ssr_slots`; one without it has a slot for each of its CPUs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import ray

from harness.database.sharing import description_of
from harness.executors.node import NodeState, keep_files
from harness.executors.outcomes import Outcome
from harness.executors.protocol import TRIES, Work, WorkerLostError
from harness.executors.ray_connection import connect
from harness.executors.ray_slots import CONTROL, Slot, Slots
from harness.executors.ray_worker import Fetch, WorkerSettings, versions
from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.interrupts import POLL_S, raise_if_stopped
from pytest_ssr.storage.store import Store, key_of

_A = TypeVar("_A")
_R = TypeVar("_R")
_MOST_CUT_OFF = 10
"""How often a unit loses its worker if the nodes themselves are lost: it may be the unit that ends them."""
_STOP_S = 10.0
_MOST_ON_SHELF = 64


@dataclass(eq=False, slots=True)
class _Unit:
    id: str
    work: _RemoteWork
    argument: Any
    future: Future[Any]
    failed: int = 0
    """How often it failed because of a machine that could begin it."""
    lost: list[NodeState] = field(default_factory=list)
    """The nodes on which its worker ended, each as often as it did."""
    cut_off: int = 0
    """How often its node could not be reached, or stopped it."""
    slot: Slot | None = None
    """The worker that has it."""
    is_ahead: bool = False
    """Whether a node was asked to fetch what it needs."""
    avoid: set[str] = field(default_factory=set)
    """The nodes on which it failed because of the machine."""


@dataclass(eq=False, slots=True)
class _RemoteWork:
    id: str
    work: Work[Any, Any]
    recipe: Any = None
    """A list with the reference of the recipe; None until the first unit."""
    making: threading.Lock = field(default_factory=threading.Lock)


class RayExecutor:
    """Runs units on the nodes of a cluster; a context manager that ends its workers."""

    is_remote = True

    def __init__(self, address: str, store: Store, *, notify: Callable[[str], None] = lambda _: None) -> None:
        """Connect to a cluster. address: `HOST:PORT` of its head, or `auto` for the one on this machine.

        store: gets the results. notify: called with each message about nodes. Raises SettingsError if there is no
        cluster, SandboxUnavailableError if it has no slot.
        """
        self._store = store
        self._lock, self._packing = threading.RLock(), threading.Lock()
        self._waiting: deque[_Unit] = deque()
        self._running: set[_Unit] = set()
        self._numbers = itertools.count()
        self._shelf: OrderedDict[str, Any] = OrderedDict()
        self._is_closed = False
        self._results = ThreadPoolExecutor(4, thread_name_prefix="ssr-results")
        description = description_of(store.root)
        self._run = key_of(socket.gethostname(), str(store.root), description)
        self._description = description if _is_reached_by_all(description) else {}
        self._is_ours = connect(address)
        self._slots = Slots(self._lock, self._settings, self._later, self._dispatch, notify)
        try:
            self._slots.start()
        except BaseException:
            self.__exit__()
            raise

    def _settings(self, slots: int, workers: int) -> WorkerSettings:
        return WorkerSettings(self._run, slots, workers, self._description, versions(), os.getcwd())

    @contextmanager
    def units(self, work: Work[_A, _R]) -> Iterator[RayUnits[_A, _R]]:
        """Yield the units of a work; see Executor."""
        units: RayUnits[_A, _R] = RayUnits(self, work, _RemoteWork(secrets.token_hex(8), work))
        try:
            yield units
            units.wait()
        except Exception:
            units.cancel(only_waiting=True)
            units.wait()
            raise
        except BaseException:
            units.cancel()
            raise

    @property
    def slots(self) -> int:
        """How many workers there are, including those that are being started."""
        return len(self._slots)

    @property
    def nodes(self) -> list[NodeState]:
        """What each node did, with those that have left."""
        return self._slots.nodes

    def summary(self) -> str:
        """Return one line about nodes and workers."""
        return self._slots.summary()

    def put(self, name: str, pack: Callable[[], bytes]) -> Fetch:
        """Return how nodes fetch data, which is packed unless the name is known; see Cluster."""
        with self._packing:
            if name not in self._shelf:
                while len(self._shelf) >= _MOST_ON_SHELF:
                    # Units that are under way have references of their own.
                    self._shelf.popitem(last=False)
                self._shelf[name] = _put(pack())
            self._shelf.move_to_end(name)
            return Fetch(self._shelf[name])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop the units that still run, end all workers, and disconnect."""
        with self._lock:
            self._is_closed = True
            units = [*self._waiting, *self._running]
        for unit in units:
            unit.future.cancel()
        deadline = time.monotonic() + _STOP_S
        # Workers have some time to remove their sandboxes.
        while self._running and time.monotonic() < deadline:
            time.sleep(POLL_S / 2)
        self._slots.close()
        self._results.shutdown(wait=False, cancel_futures=True)
        if self._is_ours:
            ray.shutdown()

    def is_running(self, future: Future[Any]) -> bool:
        """Return whether a worker has the unit of a future."""
        with self._lock:
            return any(unit.future is future for unit in self._running)

    def start(self, remote: _RemoteWork, argument: Any) -> Future[Any]:
        """Let a unit wait for a free worker."""
        unit = _Unit(f"{next(self._numbers)}", remote, argument, Future())
        unit.future.add_done_callback(lambda future: self._stop(unit) if future.cancelled() else None)
        with self._lock:
            self._waiting.append(unit)
        self._dispatch()
        return unit.future

    def _dispatch(self) -> None:
        """Give free workers the units that wait; if no node works any more, these fail."""
        while True:
            with self._lock:
                error = self._slots.nobody_works()
                if error is not None:
                    while self._waiting:
                        _fail(self._waiting.popleft().future, error)
                chosen = self._choose()
                if chosen is None:
                    self._fetch_ahead()
                    return
                unit, slot = chosen
                slot.is_busy, unit.slot = True, slot
                self._running.add(unit)
            self._send(unit, slot)

    def _choose(self) -> tuple[_Unit, Slot] | None:
        """Return the next unit for which a worker is free, and the nearest one."""
        if self._is_closed:
            return None
        for unit in self._waiting:
            slot = self._slots.nearest(unit.work.id, unit.work.work.place(unit.argument), unit.avoid)
            if slot is not None:
                self._waiting.remove(unit)
                return unit, slot
            if not unit.avoid:
                # None is free for the units behind it either: those that failed somewhere wait in front.
                return None
        return None

    def _fetch_ahead(self) -> None:
        """Let nodes fetch what the units that wait will need."""
        for unit in self._waiting:
            ahead = None if unit.is_ahead else unit.work.work.ahead(unit.argument)
            place = unit.work.work.place(unit.argument) if ahead is not None else ""
            slot = self._slots.nearest_ahead(place) if ahead is not None else None
            if slot is not None:
                unit.is_ahead = True
                slot.note_place(place)
                slot.actor.fetch.remote(ahead)

    def _send(self, unit: _Unit, slot: Slot) -> None:
        remote = unit.work
        try:
            with remote.making:
                if remote.recipe is None:
                    remote.recipe = [_put(remote.work.recipe(self))]
            argument = remote.work.send(unit.argument, self)
            slot.note_use(remote.id, remote.work.place(unit.argument))
            reference = slot.actor.run.remote(unit.id, remote.id, remote.recipe, argument)
        except BaseException as error:
            self._release(unit, slot)
            if not isinstance(error, Exception):
                raise
            with self._lock:
                self._slots.forgive(unit.id, unit.avoid)
            _fail(unit.future, error)
            return
        reference.future().add_done_callback(lambda done: self._later(self._finished, unit, slot, done))

    def _later(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a function in a thread of ours: Ray's must not wait."""
        with contextlib.suppress(RuntimeError):
            self._results.submit(function, *arguments)

    def _finished(self, unit: _Unit, slot: Slot, done: Future[Any]) -> None:
        try:
            try:
                outcome: Outcome = done.result()
            except Exception as error:
                self._lose(unit, slot, error)
            else:
                self._take(unit, slot.node, outcome)
        except Exception as error:
            _fail(unit.future, error)
        finally:
            self._release(unit, slot)
        self._dispatch()

    def _take(self, unit: _Unit, node: NodeState, outcome: Outcome) -> None:
        """Store the results of a unit, and end it, unless it has to be repeated elsewhere."""
        if unit.future.cancelled():
            return
        if outcome.is_stopped:
            unit.cut_off += 1
            self._repeat(unit, f"{node.name} has stopped it")
            return
        if outcome.is_fault and self._repeats(unit, node, outcome):
            with self._lock:
                self._waiting.appendleft(unit)
            return
        if outcome.is_fault or outcome.failure is not None:
            with self._lock:
                # It has no result anywhere, so that no node is to blame.
                self._slots.forgive(unit.id, unit.avoid)
        if outcome.failure is not None:
            _fail(unit.future, outcome.failure.error())
            return
        # From here on it cannot be cancelled: what it has stored belongs to its result.
        if not unit.future.set_running_or_notify_cancel():
            return
        if not outcome.is_fault:
            with self._lock:
                node.failed_since.clear()
                node.done += 1
                node.seconds += outcome.seconds
                self._slots.blame(unit.id, unit.avoid)
        keep_files(self._store, outcome.files)
        unit.future.set_result(outcome.result)

    def _repeats(self, unit: _Unit, node: NodeState, outcome: Outcome) -> bool:
        """Return whether a unit is to be tried on another node after a fault of this one."""
        with self._lock:
            cause = str(outcome.failure.error()) if outcome.failure is not None else outcome.cause
            unit.avoid.add(node.id)
            unit.failed += not outcome.is_unopened
            self._slots.count_fault(node, unit.id, cause)
            return unit.failed < TRIES and self._slots.has_others(unit.avoid)

    def _lose(self, unit: _Unit, slot: Slot, error: Exception) -> None:
        """Repeat the unit of a lost worker elsewhere, or end it."""
        cause = f"{slot.node.name} lost a worker ({type(error).__name__})"
        with self._lock:
            self._slots.lose(slot)
            unit.avoid.add(slot.node.id)
            self._slots.count_fault(slot.node, unit.id, cause)
            # Of a node that is lost, some workers cannot be reached, and others are known to be dead.
            if isinstance(error, ray.exceptions.ActorUnavailableError):
                unit.cut_off += 1
            else:
                unit.lost.append(slot.node)
        self._repeat(unit, cause)

    def _repeat(self, unit: _Unit, cause: str) -> None:
        """Let a unit that has no outcome wait again, unless it was begun too often."""
        # A worker of a node that is gone ended because of that, and the unit may not even have been begun.
        has_ended_them = len(unit.lost) >= TRIES and sum(map(self._slots.answers, unit.lost)) >= TRIES
        with self._lock:
            begun = len(unit.lost) + unit.cut_off
            if has_ended_them or begun >= _MOST_CUT_OFF:
                self._slots.forgive(unit.id, unit.avoid)
                _fail(unit.future, WorkerLostError(f"a unit has lost its worker {begun} times: {cause}"))
            elif unit.future.cancelled():
                self._slots.forgive(unit.id, unit.avoid)
            elif not self._is_closed:
                self._waiting.appendleft(unit)

    def _release(self, unit: _Unit, slot: Slot) -> None:
        with self._lock:
            self._slots.release(slot)
            if unit.slot is slot:
                unit.slot = None
                self._running.discard(unit)

    def _stop(self, unit: _Unit) -> None:
        """Forget a unit whose future was cancelled, or stop it."""
        with self._lock, contextlib.suppress(ValueError):
            self._slots.forgive(unit.id, unit.avoid)
            self._waiting.remove(unit)
        slot = unit.slot
        if slot is not None:
            slot.actor.stop.options(concurrency_group=CONTROL).remote(unit.id)


@dataclass(slots=True)
class RayUnits(Generic[_A, _R]):
    """The units of a work on a cluster."""

    executor: RayExecutor
    work: Work[_A, _R]
    remote: _RemoteWork
    _futures: set[Future[_R]] = field(default_factory=set)

    @property
    def slots(self) -> int:
        """How many workers the cluster has; at least one, so that units wait for those that come."""
        return max(1, self.executor.slots)

    def submit(self, argument: _A) -> Future[_R]:
        """Start a unit as soon as a worker is free; one that the store has is not started."""
        stored = self.work.stored(argument)
        future: Future[_R]
        if stored is not None:
            future = Future()
            future.set_result(stored)
            return future
        future = self.executor.start(self.remote, argument)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def cancel(self, *, only_waiting: bool = False) -> None:
        """Stop the units, or those that have not been started."""
        for future in list(self._futures):
            if not only_waiting or not self.executor.is_running(future):
                future.cancel()

    def wait(self) -> None:
        """Wait for all units to end."""
        while wait(list(self._futures), POLL_S).not_done:
            raise_if_stopped()


def _is_reached_by_all(description: Mapping[str, object]) -> bool:
    """Return whether all machines reach the database and the blobs of a store: both have to be named by URLs."""
    database, blobs = str(description.get("database", "")), str(description.get("blobs", ""))
    return database.startswith("postgresql") and "://" in blobs


def _put(data: object) -> Any:
    """Return a reference to data in Ray's object store; raises SandboxUnavailableError if it is full."""
    try:
        return ray.put(data)
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError):
        raise SandboxUnavailableError(
            "the object store of Ray is full", remedy="start the head with a larger --object-store-memory"
        ) from None


def _fail(future: Future[Any], error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
