"""Keep an object in a sandbox slot of a cluster, and call its methods from elsewhere, such as from a GPU node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import ray

from harness.executors.outcomes import Failure, Outcome, Versions
from harness.executors.protocol import VersionsDifferError
from harness.executors.ray_connection import connect
from harness.executors.ray_slots import SLOTS
from harness.executors.ray_worker import versions
from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import POLL_S, raise_if_stopped


class _Host:
    """Holds the object, which is made at its first call."""

    def __init__(self, factory: Callable[[], Any], expected: Versions) -> None:
        self._factory, self._expected, self._object = factory, expected, None

    def call(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Outcome:
        try:
            if versions() != self._expected:
                raise VersionsDifferError(f"a node has {versions()}, and this process {self._expected}")
            if self._object is None:
                self._object = self._factory()
            return Outcome(getattr(self._object, method)(*arguments, **named))
        except Exception as error:
            return Outcome(failure=Failure.of(error))


class RaySession:
    """An object that lives on a node; calls are made one after the other."""

    def __init__(self, address: str, factory: Callable[[], Any]) -> None:
        """Wait for a slot of a cluster (see RayExecutor for `address`) and make the object there at its first call.

        factory: makes the object; it is pickled. Raises SettingsError if there is no cluster.
        """
        connect(address)
        has_slots = SLOTS in ray.cluster_resources()
        options: dict[str, Any] = {"num_cpus": 0, "resources": {SLOTS: 1}} if has_slots else {"num_cpus": 1}
        self._make: Callable[[], Any] = lambda: ray.remote(_Host).options(**options).remote(factory, versions())
        self._actor = self._make()

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Return what a method returns, or raise what it raises; SandboxError if the node is lost."""
        if not ray.is_initialized():
            raise SandboxError("this process is no longer connected to the cluster")
        reference = self._actor.call.remote(method, arguments, named)
        try:
            while not ray.wait([reference], timeout=POLL_S)[0]:
                raise_if_stopped()
            outcome: Outcome = ray.get(reference)
        except ray.exceptions.RayError as error:
            # The next call makes the object again, on a node that works.
            self.close()
            self._actor = self._make()
            raise SandboxError(f"the node of a sandbox was lost ({type(error).__name__})") from None
        if outcome.failure is not None:
            raise outcome.failure.error()
        return outcome.result

    def close(self) -> None:
        """Release the slot. Idempotent."""
        if not ray.is_initialized():
            return
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._actor)
