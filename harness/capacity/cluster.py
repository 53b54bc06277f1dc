"""Describe the cluster that a run is planned for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from pytest_ssr.errors import SettingsError

DAY_S = 86_400.0
GBIT = 1e9 / 8
"""Bytes per second."""


class Bound(StrEnum):
    """What keeps a run from being faster."""

    SLOTS = "slots"
    """More nodes make it faster."""
    IN_FLIGHT = "in-flight"
    """More units could be in progress than the driver allows."""
    DRIVER = "driver"
    STORE = "store"
    """Writes into the database and the object store."""
    NETWORK = "network"
    """Results that are sent to the store."""
    PULLS = "pulls"
    """Images and trees that every node fetches."""
    PREPARATION = "preparation"
    """Every node measures the projects' tests before its first unit."""
    LONGEST_UNIT = "longest-unit"
    """Most slots wait for the last units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes with slots, and the driver, the store and the network that they share."""

    nodes: int = 1
    slots: int = 8
    """Units that a node runs at a time."""
    cores: int = 0
    """Cores of a node; 0 for one per slot."""
    unit_cores: float = 1.0
    """Cores that one unit keeps busy; slots that want more than the node has slow each other down."""
    in_flight: int = 0
    """Most units in progress at a time; 0 for as many as there are slots."""
    driver_s: float = 0.005
    """Time of the driver for one unit, in which it does nothing else."""
    writes_per_s: float = 200.0
    """Files that the store accepts per second."""
    bandwidth: float = 10 * GBIT
    """Bytes per second between all nodes together and what they share."""
    image_bytes: int = 0
    """Images that every node pulls."""
    failures_per_day: float = 0.0
    """Failures of one node."""
    replacement_s: float = 600.0
    """Time until a failed node is replaced."""
    stragglers: float = 0.0
    """Share of slow nodes."""
    slowdown: float = 2.0
    """How much longer units take on slow nodes."""

    def __post_init__(self) -> None:
        """Raise SettingsError, naming the option, for a value out of range."""
        for name in ("nodes", "slots"):
            self._require(name, getattr(self, name) >= 1, "must be at least 1")
        for name in ("unit_cores", "writes_per_s", "bandwidth"):
            self._require(name, getattr(self, name) > 0, "must be more than 0")
        for name in ("cores", "in_flight", "driver_s", "image_bytes", "failures_per_day", "replacement_s"):
            self._require(name, 0 <= getattr(self, name) < math.inf, "must be at least 0, and finite")
        self._require("stragglers", 0 <= self.stragglers <= 1, "must be in [0, 1]")
        self._require("slowdown", 1 <= self.slowdown < math.inf, "must be at least 1, and finite")

    def _require(self, name: str, holds: bool, text: str) -> None:
        if not holds:
            flag = name.replace("_", "-")
            raise SettingsError(f"--{flag} {text}, not {getattr(self, name)}", option=flag)

    @property
    def node_cores(self) -> int:
        """The cores of a node."""
        return self.cores or self.slots

    @property
    def all_slots(self) -> int:
        """The slots of all nodes."""
        return self.nodes * self.slots

    @property
    def working_slots(self) -> int:
        """The slots that can work at a time."""
        return min(self.all_slots, self.in_flight or self.all_slots)

    @property
    def contention(self) -> float:
        """How much longer units take because the slots of a node share its cores."""
        return max(1.0, self.slots * self.unit_cores / self.node_cores)

    @property
    def failure_rate(self) -> float:
        """Failures of one node per second."""
        return self.failures_per_day / DAY_S
