"""Send requests to a long-running command and receive one response to each.

A frame is the length of the JSON, the length of the bytes (both 32 bits, big-endian), the JSON, the bytes. Limits are
sampled while a request is open, as for any command; exceeding one ends the command, and the error contains the limit.
The command reads from its standard input. It answers there if that is a socket, and on descriptor 3 if it is a pipe, as
in a container.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pytest_ssr.errors import SandboxError, SsrError
from pytest_ssr.interrupts import POLL_S, is_stopped, raise_if_stopped, uninterrupted
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits

_SAMPLE_S, _DISK_S, _SHARE = 0.05, 0.5, 10
_MAX_BYTES = 512 * MIB


class LimitExceededError(SsrError):
    """A limit was exceeded while a request was open, and the command was killed."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"the {limit} limit was exceeded")
        self.limit = limit


class CommandSession(Protocol):
    """A running command and the stream to it."""

    def send(self, data: bytes) -> None:
        """Send all of the data; raises OSError if the command has ended."""

    def receive(self, max_bytes: int, *, wait_s: float) -> bytes | None:
        """Return received data, None if none arrives within `wait_s`, empty at the end. Raises OSError."""

    def exceeded_limit(self, *, disk: bool) -> Limit | None:
        """Return a limit that is exceeded now, if any; `disk` includes the disk limit, which is costly to measure."""

    def exit_summary(self) -> str:
        """Return how the command ended and the last line of its standard error, once it has closed its stream."""

    def close(self, *, at_once: bool) -> None:
        """End the command and its descendants; at_once: without waiting for it to end by itself. Idempotent."""


class RpcSession:
    """A session of requests and responses with a long-running command; a context manager that ends it."""

    def __init__(self, command: CommandSession, limits: Limits) -> None:
        """Take over a command that has just been started."""
        self._command, self._limits = command, limits
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether the session accepts requests."""
        return self._open

    def send(self, record: Mapping[str, Any]) -> None:
        """Send a request."""
        text = json.dumps(record).encode("utf-8", "surrogatepass")
        try:
            self._command.send(struct.pack("!II", len(text), 0) + text)
        except OSError as error:
            raise self._lost(error) from None

    @uninterrupted()
    def answer(self, *, wall_s: float) -> tuple[dict[str, Any], bytes]:
        """Wait for the response; raises LimitExceededError at a limit, SandboxError if the command ended or failed."""
        deadline = time.monotonic() + wall_s
        head = self._exactly(8, deadline)
        text, raw = struct.unpack("!II", head)
        if text + raw > _MAX_BYTES:
            raise self._lost("its response is too long")
        body = self._exactly(text + raw, deadline)
        try:
            record = json.loads(body[:text])
        except ValueError as error:
            raise self._lost(error) from None
        if not isinstance(record, dict):
            raise self._lost("its response is not a JSON object")
        return record, body[text:]

    @uninterrupted()
    def close(self) -> None:
        """End the command and its descendants; idempotent."""
        if self._open:
            self._open = False
            self._command.close(at_once=is_stopped())

    def __enter__(self) -> RpcSession:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _exactly(self, count: int, deadline: float) -> bytes:
        parts = bytearray()
        next_sample, next_disk = time.monotonic() + _SAMPLE_S, time.monotonic() + _DISK_S
        while len(parts) < count:
            raise_if_stopped()
            now = time.monotonic()
            if now > deadline:
                raise self._limit_error(Limit.WALL_TIME)
            if now >= next_sample:
                disk = now >= next_disk
                if (limit := self._command.exceeded_limit(disk=disk)) is not None:
                    raise self._limit_error(limit)
                cost = time.monotonic() - now
                next_sample = time.monotonic() + max(_SAMPLE_S, _SHARE * cost)
                if disk:
                    next_disk = time.monotonic() + max(_DISK_S, _SHARE * cost)
            wait_s = max(0.001, min(POLL_S, min(deadline, next_sample) - time.monotonic()))
            try:
                part = self._command.receive(min(count - len(parts), MIB), wait_s=wait_s)
            except OSError as error:
                raise self._lost(error) from None
            if part == b"":
                raise self._lost("it ended")
            parts += part or b""
        return bytes(parts)

    def _limit_error(self, limit: Limit) -> LimitExceededError:
        self._open = False
        self._command.close(at_once=True)
        return LimitExceededError(limit)

    def _lost(self, reason: object) -> SandboxError:
        summary = self._command.exit_summary()
        self._open = False
        self._command.close(at_once=True)
        return SandboxError(f"the command gave no valid response ({reason}; {summary})")


class Session(Protocol):
    """What the user of a long-running command sees of it; RpcSession has the details."""

    @property
    def is_open(self) -> bool:
        """Whether the session accepts requests."""

    def send(self, record: Mapping[str, Any]) -> None:
        """Send a request."""

    def answer(self, *, wall_s: float) -> tuple[dict[str, Any], bytes]:
        """Wait for the response."""

    def close(self) -> None:
        """End the command; idempotent."""


@runtime_checkable
class SupportsRpcSessions(Protocol):
    """A sandbox that supports long-running commands; not every sandbox does."""

    lower: str
    """The path of the tree without the mounts inside it."""
    private: tuple[str, ...]
    """Directories besides `root` and `scratch` that are private to the sandbox and empty in a fresh one."""

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Session:
        """Start a long-running command in `root` with the environment of `exec`; nothing else may run meanwhile."""
