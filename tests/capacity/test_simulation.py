"""The simulation, beside facts about queues that hold for every run."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from capacity_parts import measured

from harness.capacity.cluster import DAY_S, Bound, Cluster
from harness.capacity.durations import Measured
from harness.capacity.estimate import Planner
from harness.capacity.simulation import simulate

FREE: dict[str, Any] = {"slots": 1, "driver_s": 0.0, "writes_per_s": 1e9}
OFTEN = {"failures_per_day": DAY_S / 100, "replacement_s": 30.0}
"""Each node fails every 100 seconds."""


def varied(count: int = 200, **more: float) -> Measured:
    rng = random.Random(5)
    return measured([rng.lognormvariate(2, 0.7) for _ in range(count)], **more)


def test_one_slot_takes_the_sum() -> None:
    run = simulate(measured([3.0] * 5), 40, Cluster(**FREE))
    assert run.seconds == pytest.approx(120, rel=1e-6)
    assert run.utilisation == pytest.approx(1, rel=1e-6)
    assert (run.units, run.finished, run.lost, run.failures) == (40, 40, 0, 0)
    assert run.bound is Bound.SLOTS


@pytest.mark.parametrize("slots", [2, 7, 60])
def test_many_slots_take_at_least_their_share_and_at_most_one_unit_more(slots: int) -> None:
    values = varied()
    run = simulate(values, 500, Cluster(**{**FREE, "slots": slots}))
    work = run.utilisation * run.seconds * slots
    longest = max(unit.seconds for unit in values.units)
    assert work / slots <= run.seconds + 1e-6
    assert run.seconds <= work / slots + longest + 1e-3


@pytest.mark.parametrize("changes", [{}, OFTEN, {**OFTEN, "in_flight": 5}, {**OFTEN, "image_bytes": 10**10}])
def test_every_unit_is_done_once(changes: dict[str, Any]) -> None:
    done: Counter[int] = Counter()

    def finished(number: int) -> None:
        done[number] += 1

    run = simulate(varied(), 2000, Cluster(nodes=6, slots=3, stragglers=0.3, **changes), finished=finished)
    assert set(done) == set(range(2000))
    assert set(done.values()) == {1}
    assert run.finished == 2000
    assert (run.lost > 0) == (run.failures > 0) == bool(changes)


def test_failures_only_add_time() -> None:
    def seconds(**changes: Any) -> float:
        return simulate(measured([10.0] * 5), 2000, Cluster(nodes=5, **{**FREE, **changes})).seconds

    assert seconds() < seconds(**{**OFTEN, "replacement_s": 0.0}) < seconds(**OFTEN)


def test_a_seed_gives_one_run() -> None:
    cluster = Cluster(nodes=4, stragglers=0.5, **OFTEN)
    first, again, other = (simulate(varied(), 1000, cluster, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_nodes_share_the_bandwidth_of_their_pulls() -> None:
    values = measured([1.0] * 5, tree_bytes=50)
    run = simulate(values, 10, Cluster(nodes=10, image_bytes=950, bandwidth=100.0, **FREE))
    assert run.seconds == pytest.approx(10 * 1000 / 100 + 1)
    assert run.pulled_bytes == 10_000
    assert run.bound is Bound.PULLS


@pytest.mark.parametrize(
    ("changes", "bound", "seconds"),
    [
        ({"driver_s": 0.5}, Bound.DRIVER, 501),
        ({"writes_per_s": 10.0}, Bound.STORE, 401),
        ({"bandwidth": 1e6}, Bound.NETWORK, 301),
        ({"in_flight": 2}, Bound.IN_FLIGHT, 500),
    ],
)
def test_each_bound(changes: dict[str, Any], bound: Bound, seconds: float) -> None:
    values = measured([1.0] * 5, files_per_unit=4, bytes_per_unit=300_000)
    run = simulate(values, 1000, Cluster(nodes=100, **{**FREE, "slots": 10, **changes}))
    assert run.bound is bound
    assert run.seconds == pytest.approx(seconds, abs=1)


def test_preparation_and_the_longest_unit_are_bounds_too() -> None:
    assert simulate(measured([1.0] * 5, preparation_s=50), 10, Cluster(nodes=10)).bound is Bound.PREPARATION
    tail = measured([1.0] * 99 + [600.0])
    assert simulate(tail, 10_000, Cluster(nodes=1000, **{**FREE, "slots": 10})).bound is Bound.LONGEST_UNIT


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": 40},
        {"driver_s": 0.1},
        {"failures_per_day": DAY_S / 2000, "replacement_s": 300.0},
        {"stragglers": 0.5, "nodes": 40},
        {"image_bytes": 10**9, "bandwidth": 1e8},
    ],
)
def test_the_closed_form_agrees(changes: dict[str, Any]) -> None:
    values, cluster = varied(preparation_s=5), Cluster(**{"nodes": 10, "slots": 4, **changes})
    run, estimate = simulate(values, 20_000, cluster), Planner(values, 20_000).estimate(cluster)
    assert estimate.seconds == pytest.approx(run.seconds, rel=0.05)
    assert estimate.utilisation == pytest.approx(run.utilisation, abs=0.05)
    assert estimate.bound is run.bound


def test_nothing_to_do() -> None:
    run = simulate(measured([1.0] * 5), 0, Cluster(nodes=3, **OFTEN))
    assert (run.seconds, run.finished, run.utilisation) == (0, 0, 0)
