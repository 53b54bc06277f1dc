"""Open the executor that `--ray` or `SSR_EXECUTOR` names."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from harness.executors.local import LocalExecutor
from harness.executors.protocol import Executor
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.storage.store import Store

_SCHEME, LOCAL = "ray://", "local"


def is_remote(address: str) -> bool:
    """Return whether an address names a cluster."""
    return address not in ("", LOCAL)


def open_executor(address: str, jobs: int, store: Store, notify: Callable[[str], None]) -> Executor:
    """Return the executor: threads of this process, or a cluster.

    address: that of the cluster's head, with or without `ray://`; `auto` for the cluster of this machine. notify:
    called with messages about nodes. Raises MissingExtraError without Ray, SettingsError if there is no cluster.
    """
    if not is_remote(address):
        return LocalExecutor(jobs)
    if jobs > 1:
        raise SettingsError("--jobs is for this machine; the nodes of a cluster have slots of their own", option="jobs")
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("Ray", "ray")
    from harness.executors.ray_executor import RayExecutor

    return RayExecutor(address.removeprefix(_SCHEME), store, notify=notify)
