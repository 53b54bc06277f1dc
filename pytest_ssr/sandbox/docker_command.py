"""A command in a container that stays and answers, over the stream of the engine's `exec`."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Mapping, Sequence

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.docker_container import Container, signalled
from pytest_ssr.sandbox.docker_recipe import LOWER
from pytest_ssr.sandbox.in_container import Frames
from pytest_ssr.sandbox.local_command import ending
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.sandbox.running import limited

_GRACE_S = 0.5
# Files have the group of the container's shell, which has no number in a user namespace that a command makes, and an
# overlay there could not copy them. And whatever the command prints by accident must not be read as an answer.
_START = 'chgrp -Rh "$1" -- "$2" "$3" 2>/dev/null; shift 3; exec "$@" 3>&1 >/dev/null'


class ContainerCommand:
    """A running command and the stream to it; see StayingCommand."""

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

        used_before: bytes on the file systems when the sandbox was opened.
        """
        self._container = container
        group, scratch = str(container.recipe.user), container.recipe.scratch
        inner = ["/bin/sh", "-c", _START, "sh", group, LOWER, scratch, *limited(argv, limits, cwd)]
        self._name, self._whole, self._meter = container.start(inner, env, limits, used_before, stdin=True)
        self._stream = self._whole.socket
        self._frames = Frames()
        self._arrived, self._errors = bytearray(), bytearray()
        self._at_end = self._is_closed = False
        self._keep(self._whole.early)

    def send(self, data: bytes) -> None:
        """Send all of the data. What the kernel has killed before is not held against this question."""
        try:
            self._meter.restart()
        except SandboxError as error:
            raise BrokenPipeError(str(error)) from None
        self._stream.sendall(data)

    def receive(self, most_bytes: int, *, wait_s: float) -> bytes | None:
        """Return what has arrived; see the protocol."""
        # An encrypted stream has bytes at hand that are no longer seen at its socket.
        pending = getattr(self._stream, "pending", int)()
        if not self._arrived and not self._at_end and (pending or select.select([self._stream], [], [], wait_s)[0]):
            self._receive()
        if not self._arrived and not self._at_end:
            return None
        part = bytes(self._arrived[:most_bytes])
        del self._arrived[: len(part)]
        return part

    def _receive(self) -> None:
        piece = self._stream.recv(MIB)
        self._at_end = not piece
        self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        for stream, data in self._frames.feed(piece):
            if stream == 1:
                self._arrived += data
            else:
                self._errors += data
                del self._errors[:-MIB]

    def passed(self, *, disk: bool) -> Limit | None:
        """Return a limit that is passed now; files in memory are memory, so that the disk costs nothing more."""
        try:
            return self._meter.passed()
        except SandboxError as error:
            return self._container.blamed(error)

    def ending(self) -> str:
        """Return how the command ended; see the protocol."""
        code, until = None, time.monotonic() + _GRACE_S
        with contextlib.suppress(Exception):
            while (code := self._container.ended(self._name)) is None and time.monotonic() < until:
                time.sleep(0.01)
        return ending(signalled(code), bytes(self._errors))

    def close(self, *, at_once: bool) -> None:
        """End the command and all that comes from it, and the container as well if it does not obey."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._container.kill(self._name)
        except Exception:
            self._container.remove()
        self._whole.close()
