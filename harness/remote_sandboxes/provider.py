"""The sandbox `remote`: open sandboxes live on other machines, spread over those that have a free slot."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from harness.remote_sandboxes.calls import ErrorCode, ExecInImage, HostDescription, RemoteError
from harness.remote_sandboxes.connection import Connection
from harness.remote_sandboxes.sandbox import RemoteRpcSandbox, RemoteSandbox
from harness.remote_sandboxes.transport import Transport, UnreachableError
from harness.remote_sandboxes.trees import TreeReader
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.interrupts import pause
from pytest_ssr.progress import waits
from pytest_ssr.sandbox.protocol import Availability, ExecResult, KeepsIdle, Limits

_WAIT_S = 600.0
"""How long to wait for a free slot."""
_ELSEWHERE_S = 1.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 1.0
_LATER = frozenset({ErrorCode.BUSY, ErrorCode.CACHE_FULL, ErrorCode.CLOSING})
_SLOT = "a slot of the sandbox server"
_REMEDY = "start it there: ssr sandbox-server"
_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class RemoteProvider:
    """Open sandboxes on hosts that show the same system; each sandbox stays on its host.

    The system of the hosts counts as an image: the tests' interpreter is found there, not on this machine.
    """

    name = "remote"

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._connections = [Connection(transport) for transport in transports]
        self._turns = itertools.count()
        self._reader = TreeReader()
        self._keepers: weakref.WeakSet[KeepsIdle] = weakref.WeakSet()
        self.image = ", ".join(transport.name for transport in transports)
        atexit.register(self.close)

    def probe(self) -> Availability:
        """Try the sandboxes of all hosts; those that cannot be reached are left out from then on."""
        details, answering, lost = [], [], dict[Connection, UnreachableError]()
        for connection in self._connections:
            try:
                description = _described(connection)
            except UnreachableError as error:
                lost[connection] = error
                continue
            except SandboxError as error:
                return Availability(False, error.message, error.remedy or _REMEDY)
            if not description.works:
                return Availability(False, f"{connection.transport.name}: {description.detail}", description.remedy)
            answering.append(connection)
            details.append(f"{connection.transport.name}: {description.detail}")
        if not answering:
            return Availability(False, "; ".join(error.message for error in lost.values()), _REMEDY)
        if lost:
            names = ", ".join(connection.transport.name for connection in lost)
            _logger.warning("going on without the sandbox servers that cannot be reached: %s", names)
        for connection in lost:
            connection.close()
        self._connections = answering
        return Availability(True, "; ".join(details))

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> RemoteSandbox:
        """Open a sandbox on a host with a free slot, waiting for one if necessary."""
        described, shown = self._reader.read(tree), [str(path) for path in readable]
        # Another host is better than a long wait for this one.
        retry_s = None if len(self._connections) == 1 else _ELSEWHERE_S

        def open_on(connection: Connection) -> RemoteSandbox:
            opened = connection.open(described, mount_at, shown, hidden, retry_s=retry_s)
            kind = RemoteRpcSandbox if opened.lower else RemoteSandbox
            return kind(connection, opened)

        return _when_admitted(self._in_turn, open_on, self._make_room)

    @property
    def slots(self) -> int:
        """How many sandboxes the hosts can have open; 0 if one of them does not tell. Raises SandboxError."""
        counts = [connection.description.slots for connection in self._connections]
        return sum(counts) if all(counts) else 0

    def add_keeper(self, keeper: KeepsIdle) -> None:
        """Let idle sandboxes give way to others; see Slotted."""
        self._keepers.add(keeper)

    def image_digest(self) -> str:
        """Return a hash of the hosts' system; raises SandboxError if they differ."""
        identities = {connection.transport.name: connection.description.identity for connection in self._connections}
        if len(set(identities.values())) != 1:
            raise SandboxError(f"the sandbox servers {', '.join(identities)} do not show the same system")
        return next(iter(identities.values()))

    def exec_in_image(self, argv: Sequence[str], *, limits: Limits, stdin: bytes = b"") -> ExecResult:
        """Run a command on a host with a free slot, in a sandbox without a tree; see WithImage."""
        call = ExecInImage(tuple(argv), limits)
        reply = _when_admitted(self._in_turn, lambda connection: connection.call(call, stdin), self._make_room)
        return reply.exec_result()

    def close(self) -> None:
        """Close all sandboxes and connections."""
        atexit.unregister(self.close)
        for connection in self._connections:
            connection.close()

    def _make_room(self) -> bool:
        """Close an idle sandbox, which a run that waits for a slot would otherwise hold itself, and for good."""
        return any(keeper.close_idle() for keeper in list(self._keepers))

    def _in_turn(self) -> list[Connection]:
        first = next(self._turns) % len(self._connections)
        turn = [*self._connections[first:], *self._connections[:first]]
        return sorted(turn, key=lambda connection: connection.is_lost)


def _described(connection: Connection) -> HostDescription:
    return _when_admitted(lambda: [connection], Connection.describe)


def _when_admitted(
    candidates: Callable[[], Sequence[Connection]],
    act: Callable[[Connection], _T],
    make_room: Callable[[], bool] = lambda: False,
) -> _T:
    """Return the result of `act` on the first host that has room, waiting for one if necessary.

    candidates: returns the hosts, best first, for each try. make_room: frees a slot if it can, and returns whether it
    has. Raises SandboxError.
    """
    deadline, pause_s, is_shown = time.monotonic() + _WAIT_S, _FIRST_PAUSE_S, False
    with contextlib.ExitStack() as shown:
        while True:
            failures = []
            for connection in candidates():
                try:
                    return act(connection)
                except SandboxError as error:
                    if not _may_succeed_elsewhere(error):
                        raise
                    failures.append(error)
            is_busy = any(isinstance(f, RemoteError) and f.code is ErrorCode.BUSY for f in failures)
            if is_busy and make_room():
                continue
            are_lost = all(isinstance(failure, SandboxUnavailableError) for failure in failures)
            if are_lost or time.monotonic() > deadline:
                raise failures[-1]
            if is_busy and not is_shown:
                shown.enter_context(waits.waiting(_SLOT))
                is_shown = True
            pause(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)


def _may_succeed_elsewhere(error: SandboxError) -> bool:
    return isinstance(error, SandboxUnavailableError) or (isinstance(error, RemoteError) and error.code in _LATER)
