"""Run a long-running command in a container that answers requests, over the stream of the engine's `exec`."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Mapping, Sequence

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.docker.container import Container, signed_exit_status
from pytest_ssr.sandbox.docker.container_spec import LOWER
from pytest_ssr.sandbox.filesystem.container_shell import Frames
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.sandbox.supervision.local_session import describe_exit
from pytest_ssr.sandbox.supervision.supervisor import with_limits

_GRACE_S = 0.5
# Files have the group of the container's shell, which is not mapped in a user namespace that a command creates, so an
# overlay there could not copy them. And output that the command prints by accident must not be read as a response.
_START = 'chgrp -Rh "$1" -- "$2" "$3" 2>/dev/null; shift 3; exec "$@" 3>&1 >/dev/null'


class ContainerSession:
    """A running command and the stream to it; see CommandSession."""

    def __init__(
        self,
        container: Container,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        limits: Limits,
        cwd: str,
        used_before: int,
    ) -> None:
        """Start the command; raises SandboxError or what the SDK raises.

        used_before: bytes in use on the file systems when the sandbox was opened.
        """
        self._container = container
        group, scratch = str(container.spec.user), container.spec.scratch
        inner = ["/bin/sh", "-c", _START, "sh", group, LOWER, scratch, *with_limits(argv, limits, cwd)]
        self._name, self._attached, self._meter = container.start(inner, env, limits, used_before, stdin=True)
        self._stream = self._attached.socket
        self._frames = Frames()
        self._received, self._errors = bytearray(), bytearray()
        self._at_end = self._is_closed = False
        self._store(self._attached.buffered)

    def send(self, data: bytes) -> None:
        """Send all of the data; earlier kills by the kernel do not count for this request."""
        try:
            self._meter.restart()
        except SandboxError as error:
            raise BrokenPipeError(str(error)) from None
        self._stream.sendall(data)

    def receive(self, max_bytes: int, *, wait_s: float) -> bytes | None:
        """Return received data; see the protocol."""
        # An encrypted stream may hold decrypted bytes that `select` does not see on its socket.
        pending = getattr(self._stream, "pending", int)()
        if not self._received and not self._at_end and (pending or select.select([self._stream], [], [], wait_s)[0]):
            self._receive()
        if not self._received and not self._at_end:
            return None
        part = bytes(self._received[:max_bytes])
        del self._received[: len(part)]
        return part

    def _receive(self) -> None:
        chunk = self._stream.recv(MIB)
        self._at_end = not chunk
        self._store(chunk)

    def _store(self, chunk: bytes) -> None:
        for stream, data in self._frames.feed(chunk):
            if stream == 1:
                self._received += data
            else:
                self._errors += data
                del self._errors[:-MIB]

    def exceeded_limit(self, *, disk: bool) -> Limit | None:
        """Return a limit that is exceeded now, if any; files lie in memory, so the disk limit costs nothing extra."""
        try:
            return self._meter.exceeded_limit()
        except SandboxError as error:
            return self._container.limit_for_error(error)

    def exit_summary(self) -> str:
        """Return how the command ended; see the protocol."""
        code, deadline = None, time.monotonic() + _GRACE_S
        with contextlib.suppress(Exception):
            while (code := self._container.exit_status(self._name)) is None and time.monotonic() < deadline:
                time.sleep(0.01)
        return describe_exit(signed_exit_status(code), bytes(self._errors))

    def close(self, *, at_once: bool) -> None:
        """End the command and its descendants, or remove the container if that fails."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._container.kill(self._name)
        except Exception:
            self._container.remove()
        self._attached.close()
