"""Estimate a run on a cluster in closed form.

A run is a setup (every node pulls and prepares at the same time), a steady part, in which the slowest of slots, driver,
store and network decides, and an end, in which no unit is left to begin and the slots finish what they have. How long
units have left at that moment is the residual life of a renewal process: a long unit is likelier to be met.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from harness.capacity.cluster import Bound, Cluster
from harness.capacity.durations import Measured, Unit
from pytest_ssr.errors import SettingsError

MOST_NODES = 100_000
_STEPS = 200
_RESAMPLES = 200
_MOST_GROUPS = 2_000
"""Groups that one resample draws. More would only take longer; with fewer, intervals are wider, not narrower."""
_MOST_RESTARTS = 1000
"""A run whose units or nodes have to begin more often has no end in practice."""


class Durations:
    """An empirical distribution of the durations of units."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.seconds = sorted(unit.seconds for unit in units)
        self._sums = [0.0, *accumulate(self.seconds)]
        self.mean = self._sums[-1] / len(self.seconds)
        self.rate = sum(unit.counts for unit in units) / len(units)
        """The share of units that give what is wanted."""

    def units_for(self, wanted: int) -> int:
        """Return how many units have to be run on average for a number of results."""
        return math.ceil(wanted / self.rate - 1e-9)

    def mean_with_failures(self, factor: float, failure_rate: float) -> float:
        """Return the mean time until a unit is done that begins again after each failure of its node.

        factor: how much longer than measured each run takes.
        """
        if failure_rate == 0:
            return self.mean * factor
        return sum(math.expm1(failure_rate * factor * s) for s in self.seconds) / failure_rate / len(self.seconds)

    def share_shorter(self, seconds: float) -> float:
        """Return the share of units that take at most this long."""
        return bisect_right(self.seconds, seconds) / len(self.seconds)

    def share_left(self, seconds: float) -> float:
        """Return the share of running units that have at most this long left, at a moment that does not depend on
        them."""
        if self.mean == 0:
            return 1.0
        index = bisect_right(self.seconds, seconds)
        return (self._sums[index] + seconds * (len(self.seconds) - index)) / self._sums[-1]

    @property
    def mean_left(self) -> float:
        """The mean time that a running unit has left."""
        return sum(s * s for s in self.seconds) / 2 / self._sums[-1] if self.mean else 0.0

    def longest(self, normal: float, slow: float, slowdown: float, *, left: bool) -> float:
        """Return the expected longest duration of several units, some of which are on slow nodes.

        normal, slow: their numbers. left: of what running units have left, instead of whole units.
        """
        share = self.share_left if left else self.share_shorter
        most = self.seconds[-1] * (slowdown if slow else 1.0)
        points = [most * n / _STEPS for n in range(_STEPS + 1)]
        over: list[float] = [1 - share(x) ** normal * share(x / slowdown) ** slow for x in points]
        if not left:
            # The distribution is a step function: the left value holds up to the next point.
            return sum((b - a) * height for (a, b), height in zip(pairwise(points), over, strict=False))
        return sum((b - a) * (h + i) / 2 for (a, b), (h, i) in zip(pairwise(points), pairwise(over), strict=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run needs on a cluster."""

    nodes: int
    units: int
    """Units that are run for the wanted number of results."""
    seconds: float
    low_s: float
    high_s: float
    """The 95 % interval of `seconds` that comes from the finite number of measured units."""
    results_per_hour: float
    utilisation: float
    """Share of the slots' time that goes into units that are finished."""
    bound: Bound
    failures: float
    """Expected failures of nodes."""
    core_hours: float
    node_disk_bytes: int
    store_bytes: int
    network_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "bound": str(self.bound)}


class Planner:
    """Estimates runs that give a number of results, from what a store has measured."""

    def __init__(self, measured: Measured, wanted: int, *, seed: int = 0) -> None:
        """Raises SettingsError for a negative number."""
        if wanted < 0:
            raise SettingsError(f"--{measured.work} must be at least 0, not {wanted}", option=str(measured.work))
        self.measured, self.wanted = measured, wanted
        self.durations = Durations(measured.units)
        self._resamples = list(_resamples(measured.groups, random.Random(seed)))

    def estimate(self, cluster: Cluster) -> Estimate:
        """Return the estimate for a cluster; raises SettingsError if its nodes fail too often for the run to end."""
        require_end(self.measured, cluster)
        measured, durations = self.measured, self.durations
        units = durations.units_for(self.wanted)
        parts = self._parts(durations, cluster)
        seconds = _total(parts)
        times = sorted(_total(self._parts(resample, cluster)) for resample in self._resamples)
        failures = cluster.failure_rate * cluster.nodes * seconds
        pulled = (cluster.nodes + failures) * self._pulled_bytes(cluster)
        busy = units * durations.mean * cluster.contention / _speed(cluster)
        return Estimate(
            nodes=cluster.nodes,
            units=units,
            seconds=seconds,
            low_s=min(seconds, times[round(0.025 * (len(times) - 1))]),
            high_s=max(seconds, times[round(0.975 * (len(times) - 1))]),
            results_per_hour=self.wanted / seconds * 3600 if seconds else 0.0,
            utilisation=min(1.0, busy / (cluster.all_slots * seconds)) if seconds else 0.0,
            bound=max(parts, key=parts.__getitem__),
            failures=failures,
            core_hours=cluster.nodes * cluster.node_cores * seconds / 3600,
            # Each slot works on a copy of a tree.
            node_disk_bytes=cluster.image_bytes + measured.tree_disk_bytes + cluster.slots * measured.tree_bytes,
            store_bytes=round(units * measured.bytes_per_unit),
            network_bytes=round(pulled + units * measured.bytes_per_unit),
        )

    def nodes_within(self, seconds: float, cluster: Cluster) -> int | None:
        """Return the least number of nodes that are done in this time; None if no number is.

        More nodes can take longer: they share the bandwidth for their images.
        """

        def is_enough(nodes: int) -> bool:
            sized = replace(cluster, nodes=nodes)
            return has_end(self.measured, sized) and _total(self._parts(self.durations, sized)) <= seconds

        short, enough = 0, 1
        while not is_enough(enough):
            short, enough = enough, max(enough + 1, enough * 11 // 10)
            if enough > MOST_NODES:
                return None
        while enough - short > 1:
            middle = (short + enough) // 2
            short, enough = (short, middle) if is_enough(middle) else (middle, enough)
        return enough

    def _pulled_bytes(self, cluster: Cluster) -> int:
        return cluster.image_bytes + self.measured.tree_bytes

    def _parts(self, durations: Durations, cluster: Cluster) -> dict[Bound, float]:
        """Return the time of each part of a run. Of the four of the steady part, only the longest takes time."""
        measured, units = self.measured, durations.units_for(self.wanted)
        if not units:
            return dict.fromkeys(Bound, 0.0)
        pulls = cluster.nodes * self._pulled_bytes(cluster) / cluster.bandwidth
        steady = {
            _slots_bound(cluster): units / _units_per_s(durations, cluster, self._setup_alone_s(cluster)),
            Bound.DRIVER: units * cluster.driver_s,
            Bound.STORE: units * measured.files_per_unit / cluster.writes_per_s,
            Bound.NETWORK: units * measured.bytes_per_unit / cluster.bandwidth,
        }
        end = _end_s(durations, cluster, units, steady)
        return {**steady, Bound.PULLS: pulls, Bound.PREPARATION: measured.preparation_s, Bound.LONGEST_UNIT: end}

    def _setup_alone_s(self, cluster: Cluster) -> float:
        """Return the setup of a single node, as when it replaces another."""
        return self._pulled_bytes(cluster) / cluster.bandwidth + self.measured.preparation_s


def has_end(measured: Measured, cluster: Cluster) -> bool:
    """Return whether nodes live long enough to be set up and to finish the longest unit, at least sometimes."""
    pulls_s = cluster.nodes * (cluster.image_bytes + measured.tree_bytes) / cluster.bandwidth
    slowdown = cluster.slowdown if cluster.stragglers else 1.0
    longest_s = max(unit.seconds for unit in measured.units) * cluster.contention * slowdown
    # What lasts s seconds is begun exp(rate s) times on average until it ends.
    return cluster.failure_rate * max(longest_s, pulls_s + measured.preparation_s) <= math.log(_MOST_RESTARTS)


def require_end(measured: Measured, cluster: Cluster) -> None:
    """Raise SettingsError if nodes fail too often for a run to end."""
    if not has_end(measured, cluster):
        raise SettingsError(
            f"with {cluster.failures_per_day:g} failures a day, nodes fail before they finish their setup or the "
            "longest unit; use a lower --failures-per-day, or more --bandwidth if images take the time",
            option="failures-per-day",
        )


def _slots_bound(cluster: Cluster) -> Bound:
    return Bound.SLOTS if cluster.working_slots == cluster.all_slots else Bound.IN_FLIGHT


_SETUP_AND_END = frozenset({Bound.PULLS, Bound.PREPARATION, Bound.LONGEST_UNIT})


def _total(parts: dict[Bound, float]) -> float:
    steady = max(seconds for bound, seconds in parts.items() if bound not in _SETUP_AND_END)
    return steady + sum(parts[bound] for bound in _SETUP_AND_END)


def _speed(cluster: Cluster) -> float:
    """Return the mean speed of nodes, if a normal one has 1."""
    return 1 - cluster.stragglers + cluster.stragglers / cluster.slowdown


def _units_per_s(durations: Durations, cluster: Cluster, setup_s: float) -> float:
    """Return the units that the slots can finish per second."""
    rate = cluster.failure_rate
    # A node is up until it fails, but for its setup; then its replacement takes a while.
    available = math.exp(-rate * setup_s) / (1 + rate * cluster.replacement_s)
    per_s = 0.0
    for share, slowdown in ((1 - cluster.stragglers, 1.0), (cluster.stragglers, cluster.slowdown)):
        mean = durations.mean_with_failures(cluster.contention * slowdown, rate)
        per_s += share * cluster.working_slots / mean if mean else math.inf
    return per_s * available


def _end_s(durations: Durations, cluster: Cluster, units: int, steady: dict[Bound, float]) -> float:
    """Return how much longer than its steady part a run takes, because slots have no unit to begin at its end."""
    slots, slots_s = cluster.working_slots, steady[_slots_bound(cluster)]
    steady_s = max(steady.values())
    # If something else than the slots is the limit, fewer of them are busy.
    busy = min(units, slots, max(1.0, slots * slots_s / steady_s)) if steady_s else min(units, slots)
    slow = cluster.stragglers

    def longest(count: float, *, left: bool) -> float:
        whole = durations.longest(count * (1 - slow), count * slow, cluster.slowdown, left=left)
        return whole * cluster.contention

    unfinished = durations.mean_left * cluster.contention if steady_s == slots_s else 0.0
    end = longest(busy, left=True) - unfinished if units > slots else 0.0
    # A run takes at least as long as its longest unit.
    return max(end, longest(units, left=False) - steady_s, 0.0)


def _resamples(groups: Sequence[Sequence[Unit]], rng: random.Random) -> Iterator[Durations]:
    """Yield the durations of groups that are drawn with replacement, leaving out draws without any result."""
    count = min(len(groups), _MOST_GROUPS)
    while True:
        made = 0
        for _ in range(_RESAMPLES):
            units = [unit for group in rng.choices(groups, k=count) for unit in group]
            if any(unit.counts for unit in units):
                made += 1
                yield Durations(units)
        if made:
            return
