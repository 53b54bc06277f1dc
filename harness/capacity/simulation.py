"""Simulate a run on a cluster, event by event. Only this module imports simpy.

The driver and the store serve one unit after the other in the order of arrival, so the end of each service is known at
its beginning and needs no queue: a unit is two events, the end of its run and the end of its write. The network is
shared equally by all nodes that pull.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import simpy

from harness.capacity.cluster import Bound, Cluster
from harness.capacity.durations import Measured
from harness.capacity.estimate import Durations, require_end

_Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Simulated:
    """What happened in a simulated run."""

    nodes: int
    units: int
    finished: int
    seconds: float
    results_per_hour: float
    utilisation: float
    """Share of the slots' time that went into runs of units that were finished."""
    bound: Bound
    failures: int
    """Nodes that failed."""
    lost: int
    """Runs of units that were lost with their nodes, and made again."""
    driver_busy: float
    store_busy: float
    """Shares of the time in which the driver and the store worked."""
    setup_s: float
    """Until half of the nodes had begun."""
    end_s: float
    """Since the last unit was taken for the first time."""
    pulled_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "bound": str(self.bound)}


def simulate(
    measured: Measured,
    wanted: int,
    cluster: Cluster,
    *,
    seed: int = 0,
    finished: Callable[[int], None] = lambda _: None,
) -> Simulated:
    """Simulate a run that gives a number of results on average; the same seed gives the same run.

    finished: called with the index of each unit whose result is stored. Raises SettingsError if nodes fail too often
    for the run to end.
    """
    require_end(measured, cluster)
    units = Durations(measured.units).units_for(wanted)
    run = _Run(measured, units, cluster, random.Random(seed), finished)
    if units:
        slow = round(cluster.stragglers * cluster.nodes)
        for number in range(cluster.nodes):
            run.environment.process(run.node(is_slow=number < slow))
        run.environment.run(until=run.done)
    return run.summary(wanted)


class _Server:
    """Serves requests one after the other, in the order of arrival."""

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._free_at = self.busy_s = 0.0

    def delay(self, service_s: float) -> float:
        """Take a place in the queue, and return the seconds until the service has ended."""
        now = self._environment.now
        self._free_at = max(now, self._free_at) + service_s
        self.busy_s += service_s
        return self._free_at - now

    @property
    def served_s(self) -> float:
        """Seconds of service so far, without the requests that are waiting."""
        return self.busy_s - max(0.0, self._free_at - self._environment.now)


class _SharedLink:
    """A link whose bandwidth all pulls share equally.

    `_served` is what a pull would have got that had lasted from the beginning; a pull ends when this has grown by its
    size. So only the next end needs an event.
    """

    def __init__(self, environment: simpy.Environment, bandwidth: float) -> None:
        self._environment, self._bandwidth = environment, bandwidth
        self._served = self._since = 0.0
        self._pulls: list[tuple[float, int, simpy.Event]] = []
        self._numbers = count()
        """Break ties in the heap, whose events cannot be compared."""
        self._alarms = 0
        self.pulled = 0

    def pull(self, size: int) -> simpy.Event:
        """Begin a pull, and return the event of its end."""
        self._advance()
        done = self._environment.event()
        heapq.heappush(self._pulls, (self._served + size, next(self._numbers), done))
        self.pulled += size
        self._schedule()
        return done

    def cancel(self, done: simpy.Event) -> None:
        """End a pull early."""
        self._advance()
        self._pulls = [pull for pull in self._pulls if pull[2] is not done]
        heapq.heapify(self._pulls)
        self._schedule()

    def _advance(self) -> None:
        now = self._environment.now
        if self._pulls:
            self._served += (now - self._since) * self._bandwidth / len(self._pulls)
        self._since = now

    def _schedule(self) -> None:
        self._alarms += 1
        if self._pulls:
            left = max(0.0, self._pulls[0][0] - self._served)
            self._environment.process(self._alarm(left * len(self._pulls) / self._bandwidth, self._alarms))

    def _alarm(self, seconds: float, number: int) -> _Process:
        yield self._environment.timeout(seconds)
        if number != self._alarms:
            # A pull has begun or ended since, so that another alarm is set.
            return
        self._advance()
        end = self._pulls[0][0]
        while self._pulls and self._pulls[0][0] <= max(end, self._served):
            heapq.heappop(self._pulls)[2].succeed()
        self._schedule()


class _Run:
    """The state of a simulated run."""

    def __init__(
        self, measured: Measured, units: int, cluster: Cluster, rng: random.Random, finished: Callable[[int], None]
    ) -> None:
        self.environment = simpy.Environment()
        self.done = self.environment.event()
        self._measured, self._units, self._cluster, self._rng, self._report = measured, units, cluster, rng, finished
        self._seconds: Sequence[float] = [unit.seconds * cluster.contention for unit in measured.units]
        self._driver, self._store = _Server(self.environment), _Server(self.environment)
        self._link = _SharedLink(self.environment, cluster.bandwidth)
        self._write_s = max(measured.files_per_unit / cluster.writes_per_s, measured.bytes_per_unit / cluster.bandwidth)
        self._next = self._finished = self._in_progress = 0
        self._returned: deque[tuple[int, float]] = deque()
        """Units whose node was lost, with their durations."""
        self._idle: deque[simpy.Event] = deque()
        """Slots that have found no unit to begin."""
        self._failures = self._lost = 0
        self._begun: list[float] = []
        self._useful_s = 0.0
        self._last_begun = 0.0
        self._served_before_end = (0.0, 0.0)

    def node(self, *, is_slow: bool) -> _Process:
        """Be one node and those that replace it, until the run is done."""
        environment, cluster, rng = self.environment, self._cluster, self._rng
        while True:
            rate = cluster.failure_rate
            failure = environment.timeout(rng.expovariate(rate)) if rate else environment.event()
            pull = self._link.pull(cluster.image_bytes + self._measured.tree_bytes)
            yield pull | failure
            if failure.processed:
                self._link.cancel(pull)
            else:
                yield environment.timeout(self._measured.preparation_s) | failure
            if not failure.processed:
                self._begun.append(environment.now)
                factor = cluster.slowdown if is_slow else 1.0
                slots = [environment.process(self._slot(factor)) for _ in range(cluster.slots)]
                yield failure
                for slot in slots:
                    slot.interrupt()
            self._failures += 1
            yield environment.timeout(cluster.replacement_s)
            is_slow = rng.random() < cluster.stragglers

    def _slot(self, factor: float) -> _Process:
        """Run one unit after the other; end if the node fails."""
        environment = self.environment
        unit: tuple[int, float] | None = None
        waiting: simpy.Event | None = None
        try:
            while True:
                unit = self._take()
                if unit is None:
                    waiting = environment.event()
                    self._idle.append(waiting)
                    yield waiting
                    waiting = None
                    continue
                seconds = unit[1] * factor
                yield environment.timeout(self._driver.delay(self._cluster.driver_s) + seconds)
                yield environment.timeout(self._store.delay(self._write_s))
                number, unit = unit[0], None
                self._finish(number, seconds)
        except simpy.Interrupt:
            self._leave(unit, waiting)

    def _take(self) -> tuple[int, float] | None:
        if self._in_progress >= self._cluster.working_slots:
            return None
        if self._returned:
            self._in_progress += 1
            return self._returned.popleft()
        if self._next == self._units:
            return None
        self._in_progress += 1
        self._next += 1
        self._last_begun = self.environment.now
        if self._next == self._units:
            self._served_before_end = self._served_s()
        return self._next - 1, self._seconds[int(self._rng.random() * len(self._seconds))]

    def _finish(self, number: int, seconds: float) -> None:
        self._in_progress -= 1
        self._finished += 1
        self._useful_s += seconds
        self._report(number)
        if self._finished == self._units:
            self.done.succeed()
        elif self._idle and (self._returned or self._next < self._units):
            self._idle.popleft().succeed()

    def _leave(self, unit: tuple[int, float] | None, waiting: simpy.Event | None) -> None:
        """Give back what the slot of a failed node had."""
        if unit is not None:
            self._in_progress -= 1
            self._lost += 1
            self._returned.append(unit)
        if waiting is not None and not waiting.triggered:
            self._idle.remove(waiting)
            return
        if self._idle:
            # Another slot takes the unit, or the wake-up that this one cannot use any more.
            self._idle.popleft().succeed()

    def _served_s(self) -> tuple[float, float]:
        return self._driver.served_s, self._store.served_s

    def summary(self, wanted: int) -> Simulated:
        """Return what happened."""
        cluster, seconds = self._cluster, self.environment.now
        slots_s = cluster.all_slots * seconds
        begun = sorted(self._begun)
        return Simulated(
            nodes=cluster.nodes,
            units=self._units,
            finished=self._finished,
            seconds=seconds,
            results_per_hour=wanted / seconds * 3600 if seconds else 0.0,
            utilisation=self._useful_s / slots_s if slots_s else 0.0,
            bound=self._bound(begun),
            failures=self._failures,
            lost=self._lost,
            driver_busy=self._driver.busy_s / seconds if seconds else 0.0,
            store_busy=self._store.busy_s / seconds if seconds else 0.0,
            setup_s=begun[len(begun) // 2] if begun else 0.0,
            end_s=seconds - self._last_begun,
            pulled_bytes=self._link.pulled,
        )

    def _bound(self, begun: Sequence[float]) -> Bound:
        """Return what took the largest share of the time."""
        cluster, seconds = self._cluster, self.environment.now
        if not seconds:
            return Bound.SLOTS
        is_sending = self._measured.bytes_per_unit / cluster.bandwidth >= self._write_s
        setup_s = begun[len(begun) // 2] if begun else seconds
        is_preparing = self._measured.preparation_s > setup_s / 2
        is_limited = cluster.working_slots < cluster.all_slots
        served = zip(self._served_s(), self._served_before_end, strict=True)
        end_s = seconds - self._last_begun - max(now - before for now, before in served)
        shares = {
            Bound.IN_FLIGHT if is_limited else Bound.SLOTS: self._useful_s / (cluster.working_slots * seconds),
            Bound.DRIVER: self._driver.busy_s / seconds,
            Bound.NETWORK if is_sending else Bound.STORE: self._store.busy_s / seconds,
            Bound.PREPARATION if is_preparing else Bound.PULLS: setup_s / seconds,
            Bound.LONGEST_UNIT: end_s / seconds,
        }
        return max(shares, key=shares.__getitem__)
