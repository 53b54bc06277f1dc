"""Carry calls to hosts that are Ray actors, one on each node of a cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence

# Before the import: Ray reads it then.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.remote_sandboxes.calls import RemoteError
from harness.remote_sandboxes.frames import FrameKind, FrameReader, frame
from harness.remote_sandboxes.host import HostSettings, SandboxHost
from harness.remote_sandboxes.messages import Reply, Request
from harness.remote_sandboxes.transport import RETRY_S, UnreachableError, check_stopped
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.interrupts import POLL_S
from pytest_ssr.sandbox import choose
from pytest_ssr.sandbox.supervision.output_listener import OutputListener

_HOLD_S = 5.0
"""How long the actor waits for a call to end before it answers that the call still runs."""
_START_S, _CLOSE_S = 120.0, 10.0
_PAUSE_S = 0.5


class HostActor:
    """A host in a process of its own; Ray makes an actor of it."""

    def __init__(self, sandbox: str, settings: HostSettings) -> None:
        self._host = SandboxHost(choose(sandbox, model_written=True), settings)

    def require_started(self) -> None:
        """Return once the actor has started."""

    async def call(self, body: bytes, received: int) -> bytes:
        """Make a call, or go on with it; return frames, of which the last is the reply if the call has ended."""
        try:
            running = self._host.start(Request.decode(body))
        except RemoteError as error:
            return frame(FrameKind.REPLY, Reply(code=error.code, message=str(error)).encode())
        deadline = time.monotonic() + _HOLD_S
        async for progress in running.follow(received):
            if progress.output:
                return frame(FrameKind.OUTPUT, progress.output)
            if progress.reply is not None:
                return frame(FrameKind.REPLY, progress.reply.encode())
            if time.monotonic() > deadline:
                break
        return frame(FrameKind.ALIVE)

    def close(self) -> None:
        """Remove all sandboxes."""
        self._host.close()


class RayTransport:
    """A connection to an actor on one node, which ends with the connection."""

    def __init__(self, node: str, sandbox: str, settings: HostSettings, *, retry_s: float = RETRY_S) -> None:
        """node: its id in Ray."""
        self.name, self._retry_s = f"ray:{node[:12]}", retry_s
        # Fork servers and waiting calls need no processor of their own; what runs in the sandboxes is not Ray's.
        place = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = ray.remote(HostActor).options(num_cpus=0, scheduling_strategy=place, max_restarts=0)
        self._actor = actor.remote(sandbox, settings)
        self._is_closed = False

    def require_started(self) -> None:
        """Wait until the actor has started; raises SandboxUnavailableError if it does not."""
        try:
            ray.get(self._actor.require_started.remote(), timeout=_START_S)
        except RayError as error:
            raise SandboxUnavailableError(f"no sandbox works on {self.name}: {_reason(error)}") from None

    def call(
        self,
        request: Request,
        *,
        on_output: OutputListener | None = None,
        may_stop: bool = True,
        retry_s: float | None = None,
    ) -> Reply:
        """Make a call; see the protocol."""
        if self._is_closed or not ray.is_initialized():
            # Ray would start a cluster otherwise.
            raise SandboxError(f"the connection to the sandbox actor {self.name} is closed")
        body, received = request.encode(), 0
        retry_s = self._retry_s if retry_s is None else retry_s
        deadline = time.monotonic() + retry_s
        while True:
            try:
                kind, content = self._ask(body, received, may_stop=may_stop)
            except ActorUnavailableError as error:
                if time.monotonic() > deadline:
                    raise self._lost(error) from None
                time.sleep(_PAUSE_S)
                continue
            except RayError as error:
                raise self._lost(error) from None
            deadline = time.monotonic() + retry_s
            if kind is FrameKind.REPLY:
                return Reply.decode(content)
            if kind is FrameKind.OUTPUT:
                received += 1
                if on_output is not None:
                    on_output(content)

    def close(self) -> None:
        """Remove the actor and its sandboxes; idempotent."""
        if self._is_closed or not ray.is_initialized():
            return
        self._is_closed = True
        with contextlib.suppress(RayError):
            ray.get(self._actor.close.remote(), timeout=_CLOSE_S)
        ray.kill(self._actor)

    def _ask(self, body: bytes, received: int, *, may_stop: bool) -> tuple[FrameKind, bytes]:
        answer = self._actor.call.remote(body, received)
        while True:
            check_stopped(may_stop=may_stop)
            try:
                return next(iter(FrameReader().feed(ray.get(answer, timeout=POLL_S))))
            except GetTimeoutError:
                continue

    def _lost(self, error: Exception) -> SandboxError:
        return UnreachableError(f"the sandbox actor {self.name} cannot be reached: {_reason(error)}")


def connect(sandbox: str = "auto", settings: HostSettings | None = None) -> Sequence[RayTransport]:
    """Start an actor on each node of the cluster that this process belongs to, or that RAY_ADDRESS names.

    Raises SandboxUnavailableError if there is no cluster, or if no sandbox works on one of its nodes.
    """
    if not ray.is_initialized():
        try:
            ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            raise SandboxUnavailableError(
                f"there is no Ray cluster to use: {_reason(error)}",
                remedy="start one (ray start --head), or set RAY_ADDRESS",
            ) from None
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    transports = [RayTransport(node, sandbox, settings or HostSettings()) for node in nodes]
    try:
        _for_each(transports, RayTransport.require_started)
    except BaseException:
        _for_each(transports, RayTransport.close)
        raise
    return transports


def _for_each(transports: Sequence[RayTransport], act: Callable[[RayTransport], None]) -> None:
    for transport in transports:
        act(transport)


def _reason(error: Exception) -> str:
    """Return the last line of an error: Ray puts the traceback of the actor before it."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:300] if lines else type(error).__name__
