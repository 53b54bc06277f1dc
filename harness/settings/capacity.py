"""Define the settings of `ssr plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings, section
from pytest_ssr.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FRACTION_OR_0,
    MORE_THAN_0,
    NOT_NEGATIVE,
    option,
    required,
    shared,
    switch,
)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The nodes, and what they share."""

    slots: int = option(8, "N", "units that a node runs at a time", bound=AT_LEAST_1, is_own=True)
    cores: int = option(0, "N", "cores of a node; 0 for one per slot", bound=AT_LEAST_0)
    unit_cores: float = option(1.0, "N", "cores that one unit keeps busy", bound=MORE_THAN_0)
    in_flight: int = option(
        0, "N", "most units in progress; 0 for as many as there are slots", bound=AT_LEAST_0, is_own=True
    )
    driver_ms: float = option(5.0, "N", "milliseconds of the driver for one unit", bound=NOT_NEGATIVE)
    writes: float = option(200.0, "N", "files that the store accepts per second", bound=MORE_THAN_0)
    bandwidth: float = option(
        10.0, "GBIT", "gigabits per second that all nodes share to pull and to store", bound=MORE_THAN_0
    )
    image_bytes: int = option(0, "N", "bytes of the images that each node pulls", bound=AT_LEAST_0)
    failures_per_day: float = option(0.0, "N", "failures of a node in a day", bound=NOT_NEGATIVE)
    replacement: float = option(600.0, "SECONDS", "time until a failed node is replaced", bound=NOT_NEGATIVE)
    stragglers: float = option(0.0, "F", "fraction of nodes that are slow", bound=FRACTION_OR_0)
    slowdown: float = option(2.0, "N", "how much longer units take on slow nodes", bound=AT_LEAST_1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(CommandSettings):
    """Estimate from a store's measured durations how many nodes a run needs, how long it takes and what bounds it."""

    example: ClassVar[str] = "ssr plan .ssr --attempts 1000000 --nodes 100 1000 --image-bytes 2000000000 --simulate"
    store: Path = required("STORE", "a store with results of a similar run", is_argument=True)
    bugs: int | None = option(None, "N", "plan for this many valid bugs", bound=AT_LEAST_1)
    attempts: int | None = option(None, "N", "plan for this many graded attempts", bound=AT_LEAST_1, is_own=True)
    rows: int | None = option(None, "N", "plan for this many graded predictions", bound=AT_LEAST_1)
    nodes: tuple[int, ...] = option((), "N", "numbers of nodes to compare (default: 1 10 100 1000)", takes_many=True)
    within: float | None = option(
        None, "HOURS", "find the least number of nodes that is done in this time", bound=MORE_THAN_0
    )
    cluster: ClusterSettings = section(ClusterSettings)
    simulate: bool = switch("also simulate each run, event by event")
    seed: int = shared("seed", help="seed of the simulation and of the intervals")
    plot: Path | None = option(None, "FILE", "draw time and utilisation by nodes, as .svg, .pdf or .png")
