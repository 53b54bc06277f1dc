"""Run units on a Ray cluster: workers with a sandbox slot each, on every node that has some.

The driver keeps what waits and gives each free worker one unit, so that its memory does not grow with the number of
nodes' backlogs. A node is named by Ray's resource `ssr_slots`; one without it has a slot for each of its CPUs.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import signal
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.database.sharing import description_of
from harness.executors.node import NodeState, keep_files
from harness.executors.outcomes import Outcome
from harness.executors.protocol import Work, WorkerLostError
from harness.executors.ray_worker import Fetch, SlotWorker, WorkerSettings, versions
from pytest_ssr.errors import SandboxUnavailableError, SettingsError
from pytest_ssr.interrupts import POLL_S, raise_if_stopped
from pytest_ssr.storage.store import Store, key_of

_A = TypeVar("_A")
_R = TypeVar("_R")
SLOTS = "ssr_slots"
"""The resource of a node that counts its sandbox slots."""
TRIES = 4
"""How often a unit is begun before its lost workers become an error."""
_FAULTS = 3
"""How many units may fail on a node, one after the other, until it gets no more."""
_WATCH_S = 2.0
_STOP_S = 10.0
_LOCAL_DATABASE = "sqlite"
_MOST_ON_SHELF = 64
_MOST_PLACES = 64


@dataclass(eq=False, slots=True)
class _Slot:
    node: NodeState
    actor: Any
    unit: _Unit | None = None
    works: set[str] = field(default_factory=set)
    """The works that it has used."""
    places: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """What its last units needed; see `Work.place`."""


@dataclass(eq=False, slots=True)
class _Unit:
    id: str
    work: _RemoteWork
    argument: Any
    future: Future[Any]
    begun: int = 0
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
    """Runs units on the nodes of a cluster."""

    is_remote = True

    def __init__(self, address: str, store: Store, *, notify: Callable[[str], None] = lambda _: None) -> None:
        """Connect to a cluster. address: `HOST:PORT` of its head, or `auto` for the one on this machine.

        store: gets the results. notify: called with each message about nodes. Raises SettingsError if there is no
        cluster, SandboxUnavailableError if it has no slot.
        """
        self._store, self._notify = store, notify
        self._lock, self._packing = threading.RLock(), threading.Lock()
        self._nodes: dict[str, NodeState] = {}
        self._left: list[NodeState] = []
        self._starting: set[_Slot] = set()
        self._slots: set[_Slot] = set()
        self._idle: list[_Slot] = []
        self._waiting: deque[_Unit] = deque()
        self._cancelled = False
        self._numbers = itertools.count()
        self._shelf: OrderedDict[str, Any] = OrderedDict()
        self._closed = threading.Event()
        self._results = ThreadPoolExecutor(4, thread_name_prefix="ssr-results")
        self._is_ours = connect(address)
        description = description_of(store.root)
        is_shared = str(description.get("database", _LOCAL_DATABASE)) != _LOCAL_DATABASE
        self._run = key_of(str(store.root), description)
        self._description = description if is_shared else {}
        self._actor = ray.remote(SlotWorker)
        try:
            self._look_at_nodes()
            if not self._nodes:
                raise SandboxUnavailableError(
                    f"the cluster {address} has no sandbox slot; start nodes with `ray start --resources "
                    f"'{{\"{SLOTS}\": 4}}'`, or with CPUs"
                )
        except BaseException:
            self.__exit__()
            raise
        self._watcher = threading.Thread(target=self._watch, name="ssr-nodes", daemon=True)
        self._watcher.start()

    # The protocol.

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
        with self._lock:
            return len(self._slots) + len(self._starting)

    @property
    def nodes(self) -> list[NodeState]:
        """The nodes of this run, by name, with those that have left."""
        with self._lock:
            return sorted([*self._nodes.values(), *self._left], key=lambda n: (n.name, n.id))

    def summary(self) -> str:
        """Return one line about the nodes."""
        with self._lock:
            working, busy = (
                sum(not n.drained for n in self._nodes.values()),
                sum(s.unit is not None for s in self._slots),
            )
            return f"{working} nodes, {busy} of {len(self._slots)} workers busy"

    def put(self, name: str, pack: Callable[[], bytes]) -> Fetch:
        """Return how nodes fetch data, which is packed unless the name is known; see Cluster."""
        with self._packing:
            if name not in self._shelf:
                while len(self._shelf) >= _MOST_ON_SHELF:
                    # Units that are under way have references of their own.
                    self._shelf.popitem(last=False)
                try:
                    self._shelf[name] = ray.put(pack())
                except ray.exceptions.ObjectStoreFullError:
                    raise SandboxUnavailableError(
                        "the object store of Ray is full", remedy="start the head with a larger --object-store-memory"
                    ) from None
            self._shelf.move_to_end(name)
            return Fetch(self._shelf[name])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop all workers, and disconnect."""
        self._closed.set()
        self._stop_all()
        with self._lock:
            slots = [*self._slots, *self._starting]
            self._slots.clear()
            self._starting.clear()
            self._idle.clear()
        for slot in slots:
            ray.kill(slot.actor)
        self._results.shutdown(wait=False, cancel_futures=True)
        if self._is_ours:
            ray.shutdown()

    def _stop_all(self) -> None:
        """Stop the units that still run, and give their workers some time to clean up."""
        with self._lock:
            self._waiting.clear()
            running = [s.unit for s in self._slots if s.unit is not None]
        for unit in running:
            unit.future.cancel()
        deadline = time.monotonic() + _STOP_S
        while any(s.unit is not None for s in list(self._slots)) and time.monotonic() < deadline:
            time.sleep(POLL_S / 2)

    # Units.

    def is_running(self, future: Future[Any]) -> bool:
        """Return whether a worker has the unit of a future."""
        with self._lock:
            return any(s.unit is not None and s.unit.future is future for s in self._slots)

    def start(self, remote: _RemoteWork, argument: Any) -> Future[Any]:
        """Let a unit wait for a free worker."""
        unit = _Unit(f"{next(self._numbers)}", remote, argument, Future())
        unit.future.add_done_callback(lambda future: self._stop(unit) if future.cancelled() else None)
        with self._lock:
            if self._nobody_works():
                _fail(unit.future, self._no_node())
                return unit.future
            self._waiting.append(unit)
        self._dispatch()
        return unit.future

    def _dispatch(self) -> None:
        """Give free workers the units that wait."""
        while True:
            with self._lock:
                chosen = self._choose()
                if chosen is None:
                    return
                unit, slot = chosen
                self._idle.remove(slot)
                slot.unit = unit
                unit.begun += 1
            try:
                recipe = self._recipe(unit.work)
                argument = unit.work.work.send(unit.argument, self)
            except BaseException as error:
                with self._lock:
                    slot.unit = None
                    self._idle.append(slot)
                if not isinstance(error, Exception):
                    raise
                _fail(unit.future, error)
                continue
            self._note_use(slot, unit)
            reference = slot.actor.run.remote(unit.id, unit.work.id, recipe, argument)
            reference.future().add_done_callback(lambda done, s=slot: self._later(self._finished, s, done))

    def _choose(self) -> tuple[_Unit, _Slot] | None:
        """Return the next unit and the worker that is best for it: one that has its work open, or a node that had."""
        if not self._idle or self._closed.is_set():
            return None
        if self._cancelled:
            self._waiting = deque(u for u in self._waiting if not u.future.cancelled())
            self._cancelled = False
        for position, unit in enumerate(self._waiting):
            others = any(not n.drained and n.id not in unit.avoid for n in self._nodes.values())
            allowed = [s for s in self._idle if not others or s.node.id not in unit.avoid]
            if allowed:
                del self._waiting[position]
                return unit, max(allowed, key=self._nearness(unit))
        return None

    def _note_use(self, slot: _Slot, unit: _Unit) -> None:
        slot.works.add(unit.work.id)
        slot.places[unit.work.work.place(unit.argument)] = None
        if len(slot.places) > _MOST_PLACES:
            slot.places.popitem(last=False)

    def _nearness(self, unit: _Unit) -> Callable[[_Slot], tuple[bool, ...]]:
        """Return how near a worker is to a unit: what it has itself, and what other workers of its node had."""
        work, place = unit.work.id, unit.work.work.place(unit.argument)
        with_place = {s.node.id for s in self._slots if place and place in s.places}
        with_work = {s.node.id for s in self._slots if work in s.works}
        return lambda s: (s.node.id in with_place, work in s.works, place in s.places, s.node.id in with_work)

    def _recipe(self, remote: _RemoteWork) -> list[Any]:
        with remote.making:
            if remote.recipe is None:
                remote.recipe = [ray.put(remote.work.recipe(self))]
            recipe: list[Any] = remote.recipe
            return recipe

    def _later(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a function in a thread of ours: Ray's must not wait."""
        with contextlib.suppress(RuntimeError):
            self._results.submit(function, *arguments)

    def _finished(self, slot: _Slot, done: Future[Any]) -> None:
        unit = slot.unit
        assert unit is not None
        try:
            outcome: Outcome = done.result()
        except Exception as error:
            self._lose(slot, unit, error)
            return
        try:
            if outcome.is_stopped:
                unit.future.cancel()
            elif outcome.is_fault and self._repeat(slot.node, unit, outcome):
                pass
            elif outcome.failure is not None:
                _fail(unit.future, outcome.failure.error())
            else:
                if not outcome.is_fault:
                    slot.node.failed_since.clear()
                    slot.node.done += 1
                    slot.node.seconds += outcome.seconds
                keep_files(self._store, outcome.files)
                _succeed(unit.future, outcome.result)
        except Exception as error:
            _fail(unit.future, error)
        finally:
            self._release(slot)

    def _repeat(self, node: NodeState, unit: _Unit, outcome: Outcome) -> bool:
        """Let a unit wait for another node after a fault of this one; return False if it was tried often enough."""
        with self._lock:
            cause = str(outcome.failure.error()) if outcome.failure is not None else "a unit had no grade"
            unit.avoid.add(node.id)
            self._count_fault(node, unit.id, cause)
            others = any(not n.drained and n.id not in unit.avoid for n in self._nodes.values())
            if unit.begun >= TRIES or not others or unit.future.cancelled():
                return False
            self._waiting.appendleft(unit)
            return True

    def _lose(self, slot: _Slot, unit: _Unit, error: Exception) -> None:
        """Repeat the unit of a lost worker elsewhere, or end it."""
        cause = f"{slot.node.name} lost a worker ({type(error).__name__})"
        with self._lock:
            self._forget(slot)
            slot.node.lost += 1
            unit.avoid.add(slot.node.id)
            self._count_fault(slot.node, unit.id, cause)
            if self._closed.is_set() or unit.future.cancelled():
                return
            if self._nobody_works():
                _fail(unit.future, self._no_node())
            elif unit.begun < TRIES:
                self._waiting.appendleft(unit)
            else:
                _fail(unit.future, WorkerLostError(f"a unit has lost its worker {unit.begun} times: {cause}"))
        self._dispatch()

    def _release(self, slot: _Slot) -> None:
        with self._lock:
            slot.unit = None
            if slot in self._slots and not slot.node.drained:
                self._idle.append(slot)
        self._dispatch()

    def _stop(self, unit: _Unit) -> None:
        """Stop a unit whose future was cancelled."""
        with self._lock:
            self._cancelled = True
            slot = next((s for s in self._slots if s.unit is unit), None)
        if slot is not None:
            slot.actor.stop.remote(unit.id)

    # Nodes.

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_S):
            try:
                self._look_at_nodes()
            except Exception as error:
                self._notify(f"the cluster does not answer: {type(error).__name__}")

    def _look_at_nodes(self) -> None:
        """Start workers on new nodes and on those that lost some, and forget nodes that are gone."""
        alive = {n["NodeID"]: n for n in ray.nodes() if n["Alive"]}  # type: ignore[no-untyped-call]
        with self._lock:
            for node in [n for n in self._nodes.values() if n.id not in alive]:
                del self._nodes[node.id]
                node.has_left = True
                self._left.append(node)
                self._notify(f"{node.name} has left the cluster")
            for slot in [s for s in self._starting if s.node.id not in alive]:
                self._starting.discard(slot)
            for node_id, node in alive.items():
                resources = node["Resources"]
                count = int(resources.get(SLOTS, 0) or resources.get("CPU", 0))
                if count and node_id not in self._nodes:
                    self._nodes[node_id] = NodeState(node_id, f"{node['NodeName']}:{node_id[:6]}", count)
            for state in self._nodes.values():
                if not state.drained:
                    has = sum(s.node is state for s in (*self._slots, *self._starting))
                    uses = SLOTS in alive[state.id]["Resources"]
                    for _ in range(state.slots - has):
                        self._start_worker(state, {"resources": {SLOTS: 1}} if uses else {"num_cpus": 1})

    def _start_worker(self, node: NodeState, resources: dict[str, Any]) -> None:
        workers = sum(n.slots for n in self._nodes.values())
        settings = WorkerSettings(self._run, node.slots, workers, self._description, versions())
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"num_cpus": 0, **resources, "scheduling_strategy": place, "max_concurrency": 2}
        slot = _Slot(node, self._actor.options(**options).remote(settings))
        self._starting.add(slot)
        slot.actor.prepare.remote().future().add_done_callback(lambda done: self._later(self._prepared, slot, done))

    def _prepared(self, slot: _Slot, done: Future[Any]) -> None:
        """Take a worker that has been started, or count the fault of its node."""
        with self._lock:
            if slot not in self._starting:
                return
            self._starting.discard(slot)
            try:
                outcome: Outcome = done.result()
            except Exception as error:
                cause = f"a worker did not start ({type(error).__name__})"
                self._count_fault(slot.node, f"start-{next(self._numbers)}", cause)
                return
            if outcome.failure is not None:
                self._drain(slot.node, str(outcome.failure.error()))
                ray.kill(slot.actor)
                return
            slot.node.name = f"{outcome.result}:{slot.node.id[:6]}"
            self._slots.add(slot)
            self._idle.append(slot)
        self._dispatch()

    def _forget(self, slot: _Slot) -> None:
        self._slots.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)

    def _count_fault(self, node: NodeState, unit: str, cause: str) -> None:
        """Count a fault; a unit that fails everywhere is no reason to drain a node."""
        node.faults += 1
        node.failed_since.add(unit)
        if len(node.failed_since) >= _FAULTS and node.id in self._nodes:
            self._drain(node, cause)

    def _drain(self, node: NodeState, cause: str) -> None:
        """Give a node no more units; if it was the last one, the units that wait fail."""
        if node.drained:
            return
        node.drained = cause
        self._notify(f"{node.name} gets no more work: {cause}")
        self._idle = [s for s in self._idle if s.node is not node]
        if self._nobody_works():
            waiting, self._waiting = list(self._waiting), deque()
            for unit in waiting:
                _fail(unit.future, self._no_node())

    def _nobody_works(self) -> bool:
        return bool(self._nodes) and all(n.drained for n in self._nodes.values())

    def _no_node(self) -> SandboxUnavailableError:
        causes = sorted({f"{n.name}: {n.drained}" for n in self._nodes.values()})
        return SandboxUnavailableError(f"no node of the cluster can work: {'; '.join(causes)}")


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


def connect(address: str) -> bool:
    """Connect this process to a cluster; return whether it was not connected before. Raises SettingsError."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=None)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SettingsError(
            f"--ray {address}: there is no cluster, or it cannot be reached: {first}; "
            "start one with `ray start --head`",
            option="ray",
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            # Ray has put its own in the place of ours.
            signal.signal(signal.SIGTERM, handler)
    return True


def _succeed(future: Future[Any], result: Any) -> None:
    # It may have been cancelled in the meantime.
    with contextlib.suppress(InvalidStateError):
        future.set_result(result)


def _fail(future: Future[Any], error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
