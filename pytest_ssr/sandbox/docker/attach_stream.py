"""Access the raw stream of an attached container or command."""

from __future__ import annotations

import contextlib
import socket
from typing import Any


class Stream:
    """A socket, and the data that the SDK had already read from it."""

    def __init__(self, raw: Any) -> None:
        """raw: the object that the SDK returns for `socket=True`."""
        self._raw = raw
        self.socket: socket.socket = getattr(raw, "_sock", raw)
        self.buffered = self._peek_buffer()
        """The first bytes, which cannot be read from the socket again."""

    def _peek_buffer(self) -> bytes:
        """Return the data that the SDK has read along with the headers of the engine's response.

        On a busy machine a command may print before the SDK reads the headers; the SDK's buffer then contains the
        output, but the SDK returns the socket below that buffer.
        """
        with contextlib.suppress(AttributeError):
            reader = self._raw._response.raw._fp.fp
            self.socket.setblocking(False)
            try:
                # `peek` fills an empty buffer, which would block if the socket did.
                return bytes(reader.peek())
            finally:
                self.socket.setblocking(True)
        return b""

    def close(self) -> None:
        """Close the stream; a socket stays open as long as a file object made from it."""
        for part in (self.socket, self._raw):
            with contextlib.suppress(OSError):
                part.close()
