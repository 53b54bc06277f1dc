"""Make calls to one host: cancel what is no longer wanted, send trees, renew the leases of open sandboxes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from harness.remote_sandboxes.calls import (
    AddTree,
    Arguments,
    Cancel,
    Close,
    Describe,
    ErrorCode,
    Heartbeat,
    HostDescription,
    Missing,
    Open,
    Opened,
    PutFiles,
    RemoteError,
)
from harness.remote_sandboxes.messages import Reply, Request
from harness.remote_sandboxes.transport import Transport
from harness.remote_sandboxes.trees import Tree
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.sandbox.supervision.output_listener import OutputListener

_PROBE_S = 5.0
"""How long a probe waits for a server that is being started."""
_CLEAN_UP_S = 1.0
"""How long a clean-up waits for a server; what is left ends with its lease."""
_UNREACHABLE_S = 5.0
"""How long a lost host counts as such: no clean-up is tried there, and other hosts are preferred."""
_BATCH_BYTES = 8 * MIB
_MOST_SENDS = 3
_BEATS_PER_LEASE = 4


class Connection:
    """A host that can be reached, and the sandboxes that are open there."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._lock = threading.Lock()
        self._open: set[str] = set()
        self._description: HostDescription | None = None
        self._unreachable_until = 0.0
        self._heart: threading.Thread | None = None
        self._wake = threading.Event()

    def call(
        self,
        arguments: Arguments,
        *blobs: bytes,
        sandbox: str = "",
        on_output: OutputListener | None = None,
        retry_s: float | None = None,
    ) -> Reply:
        """Make a call; an interrupt cancels it. Raises the error that the host reports."""
        request = Request(arguments, sandbox, blobs)
        try:
            reply = self.transport.call(request, on_output=on_output, retry_s=retry_s)
        except SandboxUnavailableError:
            self._unreachable_until = time.monotonic() + _UNREACHABLE_S
            raise
        except Exception:
            raise
        except BaseException:
            # Only an interrupt or the end of a time budget: nobody waits for the reply.
            self.clean_up(Cancel(request.key))
            raise
        self._unreachable_until = 0.0
        return reply.require_success()

    @property
    def is_lost(self) -> bool:
        """Whether the host could not be reached a moment ago."""
        return time.monotonic() < self._unreachable_until

    def clean_up(self, arguments: Arguments, *, sandbox: str = "") -> None:
        """Make a call even after an interrupt; if it fails, the lease ends what it should have ended."""
        if not self.is_lost:
            self._try(arguments, sandbox)

    def _try(self, arguments: Arguments, sandbox: str = "") -> None:
        try:
            self.transport.call(Request(arguments, sandbox), may_stop=False, retry_s=_CLEAN_UP_S)
        except SandboxError:
            self._unreachable_until = time.monotonic() + _UNREACHABLE_S

    def describe(self, *, retry_s: float | None = _PROBE_S) -> HostDescription:
        """Return what the host offers now; raises SandboxError."""
        description = self.call(Describe(), retry_s=retry_s).read(HostDescription)
        self._description = description
        return description

    @property
    def description(self) -> HostDescription:
        """What the host offers, as first described."""
        return self._description or self.describe(retry_s=None)

    def open(
        self,
        tree: Tree,
        mount_at: str,
        readable: Sequence[str],
        hidden: Sequence[str],
        *,
        retry_s: float | None = None,
    ) -> Opened:
        """Open a sandbox, sending the parts of the tree that the host lacks; raises SandboxError."""
        if self._description is None:
            # Heartbeats need it, and have nobody to report an error to.
            self.describe(retry_s=retry_s)
        call = Open(tree.id, mount_at, tuple(readable), tuple(hidden))
        for _ in range(_MOST_SENDS):
            try:
                opened = self.call(call, retry_s=retry_s).read(Opened)
            except RemoteError as error:
                if error.code is not ErrorCode.UNKNOWN_TREE:
                    raise
                # Never sent, or removed in favour of other trees.
                self._send(tree)
                continue
            self._keep_alive(opened.id)
            return opened
        raise RemoteError(ErrorCode.CACHE_FULL, f"{self.transport.name} does not keep the tree")

    def close_sandbox(self, identity: str) -> None:
        """Close a sandbox."""
        with self._lock:
            self._open.discard(identity)
        self.clean_up(Close(), sandbox=identity)

    def close(self) -> None:
        """Close all sandboxes and the connection; idempotent."""
        with self._lock:
            held, heart = list(self._open), self._heart
        for identity in held:
            self.close_sandbox(identity)
        self._wake.set()
        if heart is not None:
            heart.join()
        self.transport.close()

    def _send(self, tree: Tree) -> None:
        for _ in range(_MOST_SENDS):
            missing = self.call(AddTree(tree.entries)).read(Missing).digests
            if not missing:
                return
            for digests, contents in batches(tree, set(missing)):
                self.call(PutFiles(tuple(digests)), *contents)

    def _keep_alive(self, identity: str) -> None:
        with self._lock:
            self._open.add(identity)
            if self._heart is None:
                # Not of the thread's own scope: the sandboxes may outlive the work that opens the first one.
                self._wake.clear()
                self._heart = threading.Thread(target=self._beat, name="ssr-heartbeat", daemon=True)
                self._heart.start()

    def _beat(self) -> None:
        """Renew leases until no sandbox is open, or the connection is closed."""
        while True:
            is_closed = self._wake.wait(self.description.lease_s / _BEATS_PER_LEASE)
            with self._lock:
                held = tuple(self._open)
                if is_closed or not held:
                    self._heart = None
                    return
            self._try(Heartbeat(held))


def batches(tree: Tree, missing: set[str]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield the missing files in calls of a moderate size."""
    digests: list[str] = []
    contents: list[bytes] = []
    size = 0
    for entry in tree.entries:
        if entry.digest not in missing:
            continue
        missing.discard(entry.digest)
        raise_if_stopped()
        try:
            data = (tree.folder / entry.path).read_bytes()
        except OSError as error:
            raise SandboxError(f"the tree cannot be read for the sandbox: {error}") from None
        if digests and size + len(data) > _BATCH_BYTES:
            yield digests, contents
            digests, contents, size = [], [], 0
        digests.append(entry.digest)
        contents.append(data)
        size += len(data)
    if digests:
        yield digests, contents
