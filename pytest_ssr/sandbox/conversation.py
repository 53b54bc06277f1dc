"""A command that stays and answers: its standard input is a socket, and each question has one answer.

Frames are a length of JSON and a length of bytes (both 32 bits, big-endian), the JSON, the bytes. Limits hold while a
question is open, sampled as for any command; one that is passed ends the command, and the answer says which.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import cgroup
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.sandbox.running import dying_with_us
from pytest_ssr.sandbox.sampling import Descendants
from pytest_ssr.stopping import POLL_S, is_stopped, require_going_on, uninterrupted

_SAMPLE_S, _DISK_S, _SHARE = 0.05, 0.5, 10
_LARGEST = 512 * MIB
_GENTLE_S = 0.5
"""Seconds that a command has to end by itself when its socket is closed."""


@functools.cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """Return the thread of this process that starts all conversations, and ends with it.

    A child that dies with its parent (PR_SET_PDEATHSIG) dies already with the thread that started it.
    """
    return ThreadPoolExecutor(1, thread_name_prefix=f"ssr-start-{pid}")


class PassedError(Exception):
    """A limit was passed while a question was open, and the command is dead."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"the {limit} limit was passed")
        self.limit = limit


class Conversation:
    """A running command and the socket to it; a context manager that ends it."""

    @uninterrupted()
    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        limits: Limits,
        written: Callable[[], int],
        marker: str = "",
        pass_fds: Sequence[int] = (),
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the command; raises SandboxError when that fails.

        written: returns the bytes written in the sandbox so far. marker: as for `run`. ended: called once, at the end.
        """
        self._limits, self._written = limits, written
        self._group = group = cgroup.made(limits)
        whole = [*dying_with_us(), *command]

        def over() -> None:
            if group is not None:
                group.remove()
            ended()

        self._ended = over
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed with the conversation
        try:
            self._process = (
                _starter(os.getpid())
                .submit(
                    subprocess.Popen,
                    cgroup.entered(group, whole),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=dict(env),
                    cwd="/",
                    pass_fds=tuple(pass_fds),
                    start_new_session=True,
                )
                .result()
            )
        except (OSError, ValueError) as error:
            ours.close()
            self._errors.close()
            over()
            raise SandboxError(f"the sandbox does not start: {error}") from None
        finally:
            theirs.close()
        self._descendants = Descendants(self._process.pid, marker.encode())
        self._sweep = bool(marker)
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether it can still be asked."""
        return self._open

    def tell(self, record: Mapping[str, Any]) -> None:
        """Send a question."""
        text = json.dumps(record).encode("utf-8", "surrogatepass")
        try:
            self._socket.sendall(struct.pack("!II", len(text), 0) + text)
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
        if not self._open:
            return
        self._open = False
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if is_stopped() else _GENTLE_S)
        if self._process.returncode is None or self._sweep:
            self._descendants.kill()
        self._process.wait()
        self._errors.close()
        self._ended()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _exactly(self, count: int, until: float) -> bytes:
        parts = bytearray()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        next_sample, next_disk = time.monotonic() + _SAMPLE_S, time.monotonic() + _DISK_S
        while len(parts) < count:
            require_going_on()
            now = time.monotonic()
            if now > until:
                raise self._passed(Limit.WALL_TIME)
            if now >= next_sample:
                if (limit := self._descendants.passed(self._limits, self._group)) is not None:
                    raise self._passed(limit)
                next_sample = time.monotonic() + max(_SAMPLE_S, _SHARE * (time.monotonic() - now))
            if now >= next_disk:
                if self._written() > self._limits.disk_bytes:
                    raise self._passed(Limit.DISK)
                next_disk = time.monotonic() + max(_DISK_S, _SHARE * (time.monotonic() - now))
            due = min(until, next_sample, next_disk) - time.monotonic()
            if poll.poll(1000 * max(0.001, min(POLL_S, due))):
                try:
                    part = self._socket.recv(min(count - len(parts), MIB))
                except OSError as error:
                    raise self._lost(error) from None
                if not part:
                    raise self._lost("it ended")
                parts += part
        return bytes(parts)

    def _passed(self, limit: Limit) -> PassedError:
        self._descendants.kill()
        self.close()
        return PassedError(limit)

    def _lost(self, why: object) -> SandboxError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GENTLE_S)
        code = self._process.returncode
        self._errors.seek(0)
        lines = self._errors.read(MIB).decode(errors="replace").strip().splitlines()
        self._descendants.kill()
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        said = f": {lines[-1][:300]}" if lines else ""
        return SandboxError(f"the command that should answer is gone ({why}; {how}){said}")


@runtime_checkable
class Conversing(Protocol):
    """What a sandbox offers that can hold a command which stays; not every one does."""

    lower: str
    """Where the command finds the tree without what else is shown inside of it."""
    private: tuple[str, ...]
    """Places besides `root` and `scratch` that are the sandbox's own, and that a fresh one would show empty."""

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Conversation:
        """Start a command that stays, from `root`, in the environment of `exec`; one at a time, no `exec` beside."""
