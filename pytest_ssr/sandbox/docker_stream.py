"""The stream of an attached container or command, below what the SDK gives."""

from __future__ import annotations

import contextlib
import socket
from typing import Any


class Stream:
    """A socket and what had arrived on it before it was handed over."""

    def __init__(self, raw: Any) -> None:
        """raw: what the SDK returns for `socket=True`."""
        self._raw = raw
        self.socket: socket.socket = getattr(raw, "_sock", raw)
        self.early = self._buffered()
        """The first bytes, which the socket does not give again."""

    def _buffered(self) -> bytes:
        """Return what the SDK has read together with the head of the engine's answer.

        A command that prints at once on a busy machine is quicker than the SDK, whose buffer then holds the output; the
        SDK gives away the socket below that buffer.
        """
        with contextlib.suppress(AttributeError):
            reader = self._raw._response.raw._fp.fp
            self.socket.setblocking(False)
            try:
                # Without this an empty buffer would be filled, and that would wait.
                return bytes(reader.peek())
            finally:
                self.socket.setblocking(True)
        return b""

    def close(self) -> None:
        """Close it; a socket stays open while a file made of it does."""
        for part in (self.socket, self._raw):
            with contextlib.suppress(OSError):
                part.close()
