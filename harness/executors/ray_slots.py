"""Keep workers on the nodes of a Ray cluster: one for each sandbox slot, as nodes join, fail and leave."""

from __future__ import annotations

import itertools
import math
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.executors.node import NodeState
from harness.executors.outcomes import Outcome
from harness.executors.ray_worker import MOST_OPEN, SlotWorker, WorkerSettings
from pytest_ssr.errors import SandboxUnavailableError

SLOTS = "ssr_slots"
"""The resource of a node that counts its sandbox slots."""
CONTROL = "control"
"""Ray's name for the threads of a worker that stop it and answer, whatever else it does."""
_FAULTS = 3
"""How many units may fail on a node, one after the other, and have results elsewhere, until it gets no more."""
_WATCH_S = 2.0
_LONG_START_S = 20.0
"""Seconds after which a worker that has not been started may wait for a slot that another run uses."""
_MOST_PLACES = 64
_CONNECT_S = 2.0
_ASK_S = 20.0
"""How often a worker with a unit is asked whether it runs."""
_SILENT_S = 120.0
"""After how long without an answer it is ended: a frozen process has no time limit of its own."""


@dataclass(eq=False, slots=True)
class Slot:
    """A worker and what it has used."""

    node: NodeState
    actor: Any
    started_s: float = field(default_factory=time.monotonic)
    is_busy: bool = False
    asked_s: float = 0.0
    """When it was asked last whether it runs."""
    is_asked: bool = False
    """Whether it has not answered yet."""
    works: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The works that it has open."""
    places: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """What its last units needed; see `Work.place`."""

    def note_use(self, work: str, place: str) -> None:
        """Remember what a unit needs."""
        _remember(self.works, work, MOST_OPEN)
        self.note_place(place)

    def note_place(self, place: str) -> None:
        """Remember what its node has."""
        _remember(self.places, place, _MOST_PLACES)

    def end(self) -> None:
        """End its process."""
        ray.kill(self.actor)


def _remember(names: OrderedDict[str, None], name: str, most: int) -> None:
    names[name] = None
    names.move_to_end(name)
    if len(names) > most:
        names.popitem(last=False)


class Slots:
    """The workers of a run. Its methods may be called with the lock held."""

    def __init__(
        self,
        lock: threading.RLock,
        settings: Callable[[int, int], WorkerSettings],
        later: Callable[..., None],
        changed: Callable[[], None],
        notify: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is started yet.

        settings: returns those of a worker, from the slots of its node and of all nodes. later: runs a function in
        another thread. changed: called without the lock when a worker is free or a node is drained.
        """
        self._lock, self._settings, self._later = lock, settings, later
        self._changed, self._notify = changed, notify
        self._actor = ray.remote(concurrency_groups={CONTROL: 2})(SlotWorker)
        self._alive: dict[str, NodeState] = {}
        self._left: list[NodeState] = []
        self._starting: set[Slot] = set()
        self._ready: set[Slot] = set()
        self._addresses: dict[str, tuple[str, int]] = {}
        """Where the process that manages a node's workers listens."""
        self._starts = itertools.count()
        self._is_waiting = False
        """Whether all slots belong to other runs."""
        self._is_answering = True
        """Whether the cluster has answered the last time."""
        self._closed = threading.Event()

    def start(self) -> None:
        """Start workers on all nodes, now and as nodes join; raises SandboxUnavailableError if no node has a slot."""
        self._look()
        if not self._alive:
            raise SandboxUnavailableError(
                "the cluster has no sandbox slot; start nodes with `ray start --resources "
                f"'{{\"{SLOTS}\": 4}}'`, or with CPUs"
            )
        threading.Thread(target=self._watch, name="ssr-nodes", daemon=True).start()

    def close(self) -> None:
        """End all workers. Idempotent."""
        self._closed.set()
        with self._lock:
            slots = [*self._ready, *self._starting]
            self._ready.clear()
            self._starting.clear()
        for slot in slots:
            slot.end()

    def __len__(self) -> int:
        """Return the number of workers, including those that are being started."""
        with self._lock:
            return len(self._ready) + len(self._starting)

    @property
    def nodes(self) -> list[NodeState]:
        """The nodes, by name, with those that have left."""
        with self._lock:
            return sorted([*self._alive.values(), *self._left], key=lambda n: (n.name, n.id))

    @property
    def busy(self) -> int:
        """How many workers have a unit."""
        with self._lock:
            return sum(s.is_busy for s in self._ready)

    def summary(self) -> str:
        """Return one line about nodes and workers."""
        with self._lock:
            working = sum(not n.drained for n in self._alive.values())
            line = f"{working} nodes, {self.busy} of {len(self._ready)} workers busy"
            return f"{line}, waiting for slots of other runs" if self._is_waiting else line

    def nearest(self, work: str, place: str, avoid: set[str]) -> Slot | None:
        """Return the free worker that is best for a unit; None if all that may have it are busy.

        It is on none of the nodes to avoid, and on none whose faults are being looked into, unless there are no others.
        One that had the place or has the work open is better than one on such a node, which is better than any other.
        """
        suspects = {n.id for n in self._alive.values() if len(n.failed_since) >= _most_faults(n)}
        refused: set[str] = next((ids for ids in (avoid | suspects, avoid) if self.has_others(ids)), set())
        free = [s for s in self._ready if not s.is_busy and not s.node.drained and s.node.id not in refused]
        with_place = {s.node.id for s in self._ready if place and place in s.places}
        with_work = {s.node.id for s in self._ready if work in s.works}

        def nearness(s: Slot) -> tuple[bool, ...]:
            return s.node.id in with_place, work in s.works, place in s.places, s.node.id in with_work

        return max(free, key=nearness, default=None)

    def nearest_ahead(self, place: str) -> Slot | None:
        """Return the worker on whose node a place that no node has had should be prepared; None if one has had it.

        It is on the node with the fewest places for each slot, which are noted when they are prepared.
        """
        usable = [s for s in self._ready if not s.node.drained]
        if not usable or any(place in s.places for s in self._ready):
            return None
        counts = Counter[str]()
        for slot in usable:
            counts[slot.node.id] += len(slot.places)
        return min(usable, key=lambda s: (counts[s.node.id] / s.node.slots, len(s.places)))

    def has_others(self, avoid: set[str]) -> bool:
        """Return whether a node that has a worker of this run, or is about to have one, is not among these."""
        recent_s = time.monotonic() - _LONG_START_S
        soon = [s for s in self._starting if s.started_s > recent_s]
        return any(not s.node.drained and s.node.id not in avoid for s in (*self._ready, *soon))

    def nobody_works(self) -> SandboxUnavailableError | None:
        """Return the error if all nodes are drained."""
        if not self._alive or any(not n.drained for n in self._alive.values()):
            return None
        causes = sorted({f"{n.name}: {n.drained}" for n in self._alive.values()})
        return SandboxUnavailableError(f"no node of the cluster can work: {'; '.join(causes)}")

    def lose(self, slot: Slot) -> None:
        """Forget a worker that was lost; its node gets another one."""
        self._ready.discard(slot)
        slot.node.lost += 1
        # It may live on a node that cannot be reached, and hold the slot.
        slot.end()

    def answers(self, node: NodeState) -> bool:
        """Return whether the process that manages a node's workers runs; the cluster notices its end much later."""
        if node.has_left:
            return False
        try:
            with socket.create_connection(self._addresses[node.id], timeout=_CONNECT_S):
                return True
        except OSError:
            return False

    def release(self, slot: Slot) -> None:
        """Let a worker have another unit, unless its node gets no more."""
        slot.is_busy = False
        if slot.node.drained and slot in self._ready:
            self._retire(slot)

    def _retire(self, slot: Slot) -> None:
        # Another run may have more luck with the slot.
        self._ready.discard(slot)
        slot.end()

    def count_fault(self, node: NodeState, unit: str, cause: str) -> None:
        """Note that a unit failed on a node; whose fault that is, shows elsewhere."""
        node.faults += 1
        node.failed_since[unit], node.cause = False, cause

    def blame(self, unit: str, nodes: Collection[str]) -> None:
        """Count the faults of a unit on these nodes, because it has a result elsewhere."""
        for node in [self._alive[node_id] for node_id in nodes if node_id in self._alive]:
            if unit in node.failed_since:
                node.failed_since[unit] = True
                if sum(node.failed_since.values()) >= _most_faults(node):
                    self._drain(node, node.cause)

    def forgive(self, unit: str, nodes: Collection[str]) -> None:
        """Forget the faults of a unit that has no result anywhere."""
        for node in [self._alive[node_id] for node_id in nodes if node_id in self._alive]:
            node.failed_since.pop(unit, None)

    def _drain(self, node: NodeState, cause: str) -> None:
        if not node.drained:
            node.drained = cause
            self._notify(f"{node.name} gets no more work: {cause}")
            for slot in [s for s in self._ready if s.node is node and not s.is_busy]:
                self._retire(slot)

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_S):
            try:
                self._look()
                self._ask()
                self._is_answering = True
                self._changed()
            except (Exception, KeyboardInterrupt) as error:
                if self._is_answering and not self._closed.is_set():
                    self._notify(f"the cluster does not answer: {type(error).__name__}")
                self._is_answering = False

    def _ask(self) -> None:
        """Ask the workers that have units whether they run, and end those that have not answered for long."""
        now = time.monotonic()
        with self._lock:
            busy = [s for s in self._ready if s.is_busy]
        for slot in busy:
            if slot.is_asked:
                if now - slot.asked_s > _SILENT_S:
                    self._notify(f"a worker on {slot.node.name} does not answer, and is ended")
                    slot.is_asked = False
                    # Its unit is then lost, and runs elsewhere.
                    slot.end()
            elif now - slot.asked_s > _ASK_S:
                slot.is_asked, slot.asked_s = True, now
                answer = slot.actor.answer.options(concurrency_group=CONTROL).remote()
                answer.future().add_done_callback(partial(_note_answer, slot))

    def _look(self) -> None:
        """Start workers on new nodes and on those that lost some, and forget nodes that are gone."""
        found = {n["NodeID"]: n for n in ray.nodes() if n["Alive"]}
        with self._lock:
            if self._closed.is_set():
                return
            left = [n for n in self._alive.values() if n.id not in found]
            for node in left:
                del self._alive[node.id]
                node.has_left = True
                self._left.append(node)
                self._starting = {s for s in self._starting if s.node is not node}
                self._ready = {s for s in self._ready if s.node is not node or s.is_busy}
                self._notify(f"{node.name} has left the cluster")
            for node_id, data in found.items():
                count = int(data["Resources"].get(SLOTS, 0) or data["Resources"].get("CPU", 0))
                if count and node_id not in self._alive:
                    self._addresses[node_id] = data["NodeManagerAddress"], data["NodeManagerPort"]
                    self._alive[node_id] = NodeState(node_id, f"{data['NodeName']}:{node_id[:6]}", count)
            if left and not self._alive:
                self._notify("no node is left; the run waits until one joins")
            for node in self._alive.values():
                has = sum(s.node is node for s in (*self._ready, *self._starting))
                uses_slots = SLOTS in found[node.id]["Resources"]
                for _ in range(0 if node.drained else node.slots - has):
                    self._start_worker(node, {"resources": {SLOTS: 1}} if uses_slots else {"num_cpus": 1})
            self._note_waiting()

    def _note_waiting(self) -> None:
        """Report once that this run has no worker because other runs have all slots."""
        begun_s = min((s.started_s for s in self._starting), default=math.inf)
        waits = not self._ready and time.monotonic() - begun_s > _LONG_START_S and not _free_slots()
        if waits and not self._is_waiting:
            self._notify("other runs have all slots of the cluster; this one waits until they end")
        self._is_waiting = waits

    def _start_worker(self, node: NodeState, resources: dict[str, Any]) -> None:
        settings = self._settings(node.slots, sum(n.slots for n in self._alive.values()))
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        # Besides a unit, something may be fetched for the next one.
        options = {"num_cpus": 0, **resources, "scheduling_strategy": place, "max_concurrency": 2}
        slot = Slot(node, self._actor.options(**options).remote(settings))
        self._starting.add(slot)
        slot.actor.prepare.remote().future().add_done_callback(lambda done: self._later(self._prepared, slot, done))

    def _prepared(self, slot: Slot, done: Future[Any]) -> None:
        """Take a worker that has been started, or count the fault of its node."""
        with self._lock:
            if slot not in self._starting or self._closed.is_set():
                return
            self._starting.discard(slot)
            try:
                outcome: Outcome = done.result()
            except Exception as error:
                start = f"start-{next(self._starts)}"
                self.count_fault(slot.node, start, f"a worker did not start ({type(error).__name__})")
                self.blame(start, [slot.node.id])
            else:
                if outcome.failure is None:
                    slot.node.name = f"{outcome.result}:{slot.node.id[:6]}"
                    self._ready.add(slot)
                else:
                    self._drain(slot.node, str(outcome.failure.error()))
                    slot.end()
        self._changed()


def _most_faults(node: NodeState) -> int:
    # All slots of a node may fail at the same time for a short while.
    return _FAULTS + node.slots - 1


def _note_answer(slot: Slot, _: Future[Any]) -> None:
    slot.is_asked = False


def _free_slots() -> bool:
    """Return whether the cluster has room for another worker."""
    free = ray.available_resources()
    return float(free.get(SLOTS if SLOTS in ray.cluster_resources() else "CPU", 0)) >= 1
