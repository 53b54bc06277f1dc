"""The closed form, beside values that are computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from capacity_parts import measured

from harness.capacity.cluster import DAY_S, Bound, Cluster
from harness.capacity.durations import Measured, Unit
from harness.capacity.estimate import Durations, Planner
from harness.capacity.simulation import simulate
from pytest_ssr.errors import SettingsError

FREE: dict[str, Any] = {"slots": 1, "driver_s": 0.0, "writes_per_s": 1e9}
"""A cluster on which only units take time."""


def durations(*seconds: float) -> Durations:
    return Durations([Unit(s, True, "resolved") for s in seconds])


def test_one_slot_takes_the_sum() -> None:
    estimate = Planner(measured([1.0, 2.0, 3.0]), 30).estimate(Cluster(**FREE))
    assert estimate.seconds == pytest.approx(60, rel=1e-6)
    assert estimate.utilisation == pytest.approx(1, rel=1e-6)
    assert estimate.bound is Bound.SLOTS
    assert estimate.results_per_hour == pytest.approx(1800, rel=1e-6)
    assert estimate.core_hours == pytest.approx(1 / 60, rel=1e-6)


def test_results_that_do_not_count_are_made_again() -> None:
    estimate = Planner(measured([2.0] * 8, counts=2), 30).estimate(Cluster(**FREE))
    assert (estimate.units, round(estimate.seconds)) == (120, 240)


def test_equal_units_end_together() -> None:
    # 100 units of 4 s on 20 slots, in 5 waves; what is left of a unit is 2 s on average and 4 s at most.
    estimate = Planner(measured([4.0] * 5), 100).estimate(Cluster(nodes=5, **{**FREE, "slots": 4}))
    assert 20 <= estimate.seconds <= 22
    only_one_wave = Planner(measured([4.0] * 5), 20).estimate(Cluster(nodes=10, **{**FREE, "slots": 4}))
    assert only_one_wave.seconds == pytest.approx(4, abs=0.05)
    assert only_one_wave.utilisation == pytest.approx(0.5, abs=0.01)


def test_what_a_running_unit_has_left() -> None:
    # A moment falls into the unit of 3 s three times as often as into that of 1 s: (1 * 0.5 + 3 * 1.5) / 4.
    two = durations(1.0, 3.0)
    assert two.mean_left == pytest.approx(1.25)
    assert [two.share_left(x) for x in (0.0, 1.0, 2.0, 3.0)] == pytest.approx([0, 0.5, 0.75, 1])
    assert two.longest(1, 0, 1.0, left=True) == pytest.approx(1.25, abs=0.01)
    assert two.longest(1e6, 0, 1.0, left=True) == pytest.approx(3, abs=0.02)
    assert two.longest(1, 0, 1.0, left=False) == pytest.approx(2, abs=0.02)
    assert two.longest(0, 1, 2.0, left=False) == pytest.approx(4, abs=0.04)


def test_a_unit_that_begins_again_after_failures() -> None:
    # The mean time until a unit of s seconds survives failures at rate r is (exp(r s) - 1) / r.
    assert durations(10.0).mean_with_failures(2.0, 0.1) == pytest.approx((math.e**2 - 1) / 0.1)
    assert durations(10.0).mean_with_failures(2.0, 0.0) == 20


@pytest.mark.parametrize(
    ("changes", "bound", "seconds"),
    [
        ({"driver_s": 0.5}, Bound.DRIVER, 500),
        ({"writes_per_s": 10.0}, Bound.STORE, 400),
        ({"bandwidth": 1e6}, Bound.NETWORK, 300),
        ({"image_bytes": 10**9, "bandwidth": 1e9}, Bound.PULLS, 100),
        ({"in_flight": 2}, Bound.IN_FLIGHT, 500),
    ],
)
def test_each_bound(changes: dict[str, Any], bound: Bound, seconds: float) -> None:
    values = measured([1.0] * 5, files_per_unit=4, bytes_per_unit=300_000)
    estimate = Planner(values, 1000).estimate(Cluster(nodes=100, **{**FREE, "slots": 10, **changes}))
    assert estimate.bound is bound
    assert estimate.seconds == pytest.approx(seconds, abs=2.5)


def test_preparation_and_the_longest_unit_are_bounds_too() -> None:
    planner = Planner(measured([1.0] * 99 + [600.0], preparation_s=50), 10_000)
    assert planner.estimate(Cluster(nodes=1000, **{**FREE, "slots": 10})).bound is Bound.LONGEST_UNIT
    assert Planner(measured([1.0] * 5, preparation_s=50), 10).estimate(Cluster(nodes=10)).bound is Bound.PREPARATION


def test_slow_nodes_failures_and_shared_cores_add_time() -> None:
    planner = Planner(measured([10.0] * 5), 100_000)
    alone = planner.estimate(Cluster(nodes=10, **FREE)).seconds

    def factor(**changes: Any) -> float:
        return planner.estimate(Cluster(nodes=10, **{**FREE, **changes})).seconds / alone

    assert factor(stragglers=0.5, slowdown=4.0) == pytest.approx(1 / (0.5 + 0.5 / 4), rel=0.01)
    assert factor(unit_cores=3.0) == pytest.approx(3, rel=0.01)
    assert factor(unit_cores=3.0, cores=3) == pytest.approx(1, rel=0.01)
    # A failure every 1,000 s, replaced after 500 s: two thirds of the time, and 10 s units lose half of one each.
    slower = factor(failures_per_day=DAY_S / 1000, replacement_s=500.0)
    assert slower == pytest.approx(1.5 * 1000 * math.expm1(0.01) / 10, rel=0.01)


def test_disk_and_network() -> None:
    values = measured([1.0] * 5, bytes_per_unit=1000.0, tree_bytes=50, tree_disk_bytes=120)
    estimate = Planner(values, 200).estimate(Cluster(nodes=3, slots=4, image_bytes=1000))
    assert estimate.node_disk_bytes == 1000 + 120 + 4 * 50
    assert estimate.store_bytes == 200_000
    assert estimate.network_bytes == 200_000 + 3 * 1050


def test_the_least_number_of_nodes() -> None:
    planner = Planner(measured([1.0] * 5), 100_000)
    cluster = Cluster(**FREE)
    least = planner.nodes_within(1000, cluster)
    assert least is not None
    assert least == pytest.approx(100, abs=1)
    assert planner.estimate(Cluster(nodes=least, **FREE)).seconds <= 1000
    assert planner.estimate(Cluster(nodes=least - 1, **FREE)).seconds > 1000
    # The images of that many nodes need longer than the run may take.
    assert planner.nodes_within(1000, Cluster(image_bytes=10**11, **FREE)) is None


def test_the_interval_is_that_of_the_measured_units() -> None:
    few = Planner(measured([1.0, 9.0] * 3), 1000).estimate(Cluster(**FREE))
    many = Planner(measured([1.0, 9.0] * 300), 1000).estimate(Cluster(**FREE))
    assert few.low_s < many.low_s < many.seconds < many.high_s < few.high_s
    # The mean of 600 draws from 1 and 9 has a standard error of 4 / sqrt(600).
    assert (many.high_s - many.low_s) / 1000 == pytest.approx(2 * 1.96 * 4 / 600**0.5, rel=0.25)
    again = Planner(measured([1.0, 9.0] * 3), 1000).estimate(Cluster(**FREE))
    assert again == few


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        (measured([1.0] * 4 + [1e5]), {}),
        (measured([1e3] * 5), {"stragglers": 0.1, "slowdown": 100.0}),
        (measured([1.0] * 5, preparation_s=1e5), {}),
        (measured([1.0] * 5), {"image_bytes": 10**12, "bandwidth": 1e7}),
    ],
)
def test_nodes_that_fail_before_anything_ends(values: Measured, changes: dict[str, Any]) -> None:
    cluster = Cluster(failures_per_day=100.0, **changes)
    for run in (Planner(values, 10).estimate, lambda cluster: simulate(values, 10, cluster)):
        with pytest.raises(SettingsError) as caught:
            run(cluster)
        assert caught.value.option == "failures-per-day"
    assert Planner(values, 10).nodes_within(1e9, cluster) is None


def test_nothing_to_do() -> None:
    estimate = Planner(measured([1.0] * 5), 0).estimate(Cluster())
    assert (estimate.seconds, estimate.units, estimate.utilisation, estimate.core_hours) == (0, 0, 0, 0)
    with pytest.raises(SettingsError):
        Planner(measured([1.0] * 5), -1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"slots": 0},
        {"cores": -1},
        {"unit_cores": 0.0},
        {"in_flight": -1},
        {"driver_s": math.nan},
        {"writes_per_s": 0.0},
        {"bandwidth": -1.0},
        {"failures_per_day": math.inf},
        {"stragglers": 1.5},
        {"slowdown": 0.5},
    ],
)
def test_invalid_clusters_name_the_option(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        Cluster(**wrong)
    assert caught.value.option == next(iter(wrong)).replace("_", "-")
