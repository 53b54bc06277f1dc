"""Split the response to a call into frames: a type, a length, and bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from harness.remote_sandboxes.calls import ErrorCode, RemoteError

_HEAD = struct.Struct("!BI")
MAX_FRAME_BYTES = 1 << 30


class FrameKind(IntEnum):
    """What a frame holds."""

    ALIVE = 0
    """Nothing: the call still runs."""
    OUTPUT = 1
    """A part of the command's output."""
    REPLY = 2
    """The reply, which ends the response."""


def frame(kind: FrameKind, data: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEAD.pack(kind, len(data)) + data


class FrameReader:
    """Takes bytes as they arrive, and returns the complete frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """Yield the frames that these bytes complete; raises RemoteError for bytes that are no frames."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._rest)
            if size > MAX_FRAME_BYTES or kind not in list(FrameKind):
                raise RemoteError(ErrorCode.MALFORMED, "the response is not that of a sandbox server")
            end = _HEAD.size + size
            if len(self._rest) < end:
                return
            content = bytes(self._rest[_HEAD.size : end])
            del self._rest[:end]
            yield FrameKind(kind), content
