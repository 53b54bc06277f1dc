"""A command that stays and answers: each question that is sent to it has one answer.

Frames are a length of JSON and a length of bytes (both 32 bits, big-endian), the JSON, the bytes. Limits hold while a
question is open, sampled as for any command; one that is passed ends the command, and the error says which. The command
reads from its standard input. If that is a socket, it answers there; if it is a pipe, as in a container, it answers on
descriptor 3.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.stopping import POLL_S, is_stopped, require_going_on, uninterrupted

_SAMPLE_S, _DISK_S, _SHARE = 0.05, 0.5, 10
_LARGEST = 512 * MIB


class PassedError(Exception):
    """A limit was passed while a question was open, and the command is dead."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"the {limit} limit was passed")
        self.limit = limit


class StayingCommand(Protocol):
    """A running command and the way to it."""

    def send(self, data: bytes) -> None:
        """Send all of the data; raises OSError if the command is gone."""

    def receive(self, most_bytes: int, *, wait_s: float) -> bytes | None:
        """Return what has arrived, None if nothing does in this time; empty at the end. Raises OSError."""

    def passed(self, *, disk: bool) -> Limit | None:
        """Return a limit that is passed now; what was written is measured only with `disk`, as that can cost much."""

    def ending(self) -> str:
        """Return how the command ended and the last line of its standard error, once it has closed its stream."""

    def close(self, *, at_once: bool) -> None:
        """End the command and all that comes from it; at_once: without waiting for it to end by itself. Idempotent."""


class Conversation:
    """Questions and answers over a command that stays; a context manager that ends it."""

    def __init__(self, command: StayingCommand, limits: Limits) -> None:
        """Take over a command that was just started."""
        self._command, self._limits = command, limits
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether it can still be asked."""
        return self._open

    def tell(self, record: Mapping[str, Any]) -> None:
        """Send a question."""
        text = json.dumps(record).encode("utf-8", "surrogatepass")
        try:
            self._command.send(struct.pack("!II", len(text), 0) + text)
        except OSError as error:
            raise self._lost(error) from None

    @uninterrupted()
    def answer(self, *, wall_s: float) -> tuple[dict[str, Any], bytes]:
        """Wait for the answer; raises PassedError at a limit, SandboxError when the command is gone or babbles."""
        until = time.monotonic() + wall_s
        head = self._exactly(8, until)
        text, raw = struct.unpack("!II", head)
        if text + raw > _LARGEST:
            raise self._lost("it sends too much")
        body = self._exactly(text + raw, until)
        try:
            record = json.loads(body[:text])
        except ValueError as error:
            raise self._lost(error) from None
        if not isinstance(record, dict):
            raise self._lost("it sends no record")
        return record, body[text:]

    @uninterrupted()
    def close(self) -> None:
        """End the command and all that comes from it; idempotent."""
        if self._open:
            self._open = False
            self._command.close(at_once=is_stopped())

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _exactly(self, count: int, until: float) -> bytes:
        parts = bytearray()
        next_sample, next_disk = time.monotonic() + _SAMPLE_S, time.monotonic() + _DISK_S
        while len(parts) < count:
            require_going_on()
            now = time.monotonic()
            if now > until:
                raise self._passed(Limit.WALL_TIME)
            if now >= next_sample:
                disk = now >= next_disk
                if (limit := self._command.passed(disk=disk)) is not None:
                    raise self._passed(limit)
                cost = time.monotonic() - now
                next_sample = time.monotonic() + max(_SAMPLE_S, _SHARE * cost)
                if disk:
                    next_disk = time.monotonic() + max(_DISK_S, _SHARE * cost)
            wait_s = max(0.001, min(POLL_S, min(until, next_sample) - time.monotonic()))
            try:
                part = self._command.receive(min(count - len(parts), MIB), wait_s=wait_s)
            except OSError as error:
                raise self._lost(error) from None
            if part == b"":
                raise self._lost("it ended")
            parts += part or b""
        return bytes(parts)

    def _passed(self, limit: Limit) -> PassedError:
        self._open = False
        self._command.close(at_once=True)
        return PassedError(limit)

    def _lost(self, why: object) -> SandboxError:
        how = self._command.ending()
        self._open = False
        self._command.close(at_once=True)
        return SandboxError(f"the command that should answer is gone ({why}; {how})")


@runtime_checkable
class Conversing(Protocol):
    """What a sandbox offers that can hold a command which stays; not every one does."""

    lower: str
    """Where the command finds the tree without what else is shown inside of it."""
    private: tuple[str, ...]
    """Places besides `root` and `scratch` that are the sandbox's own, and that a fresh one would show empty."""

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Conversation:
        """Start a command that stays, from `root`, in the environment of `exec`; one at a time, no `exec` beside."""
