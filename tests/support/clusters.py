"""Run a Ray cluster of several nodes on this machine, each with its own cache and temporary folder."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import ray
from ray.cluster_utils import Cluster

_STORE_BYTES = 80 * 2**20
_NODE_OPTIONS: dict[str, Any] = {"num_cpus": 1, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
# A killed node is noticed after three seconds instead of half a minute.
_FAST_DETECTION = {"health_check_period_ms": 1_000, "health_check_failure_threshold": 3}
_STARTS = 4
_T = TypeVar("_T")


def _started(start: Callable[[], _T]) -> _T:
    """Start a node, several times if need be.

    It ends itself if one of its agents takes 15 seconds to start, which happens on a busy machine and is no setting.
    """
    for _ in range(_STARTS - 1):
        # Ray raises no narrower exception.
        with contextlib.suppress(Exception):
            return start()
    return start()


def _with_head() -> Cluster:
    cluster = Cluster()
    cluster.add_node(**{**_NODE_OPTIONS, "num_cpus": 0, "_system_config": _FAST_DETECTION})
    return cluster


class LocalCluster:
    """A head without sandbox slots, as a driver's machine may be, and nodes with one slot each."""

    def __init__(self, folder: Path, nodes: int, **environment: str) -> None:
        self._folder, self._count, self._environment = folder, nodes, environment
        self.workers: list[Any] = []
        self._caches: dict[str, str] = {}
        self.made = 0

    def __enter__(self) -> Self:
        self._cluster = _started(_with_head)
        for _ in range(self._count):
            self.add()
        return self

    @property
    def address(self) -> str:
        address: str = self._cluster.address
        return address

    def add(self, slots: int = 1, **environment: str) -> Any:
        """Start a node and return it."""
        self.made += 1
        own = self._folder / f"node-{self.made}"
        (own / "tmp").mkdir(parents=True)
        variables = {
            "SSR_NODE_CACHE": str(own / "cache"),
            "TMPDIR": str(own / "tmp"),
            **self._environment,
            **environment,
        }
        options = {**_NODE_OPTIONS, "num_cpus": slots, "resources": {"ssr_slots": slots}, "env_vars": variables}
        node = _started(lambda: self._cluster.add_node(**options))
        self._caches[node.unique_id] = variables["SSR_NODE_CACHE"]
        self.workers.append(node)
        return node

    def signal(self, node: Any, number: signal.Signals) -> None:
        """Send a signal to all processes of a node: without some of them, it looks as if the network was cut."""
        variable = f"SSR_NODE_CACHE={self._caches[node.unique_id]}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if variable in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), number)

    def kill(self, node: Any) -> None:
        """Kill all processes of a node."""
        self.workers.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def __exit__(self, *exc_info: object) -> None:
        # A cluster does not remove the node that this process is connected to.
        ray.shutdown()
        self._cluster.shutdown()
