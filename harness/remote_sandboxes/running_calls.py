"""Make each call once, in a separate thread, and keep its reply for as long as its client may ask again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from harness.remote_sandboxes.calls import ErrorCode, RemoteError
from harness.remote_sandboxes.messages import Reply, Request
from pytest_ssr.errors import SandboxUnavailableError, SsrError, describe_unexpected
from pytest_ssr.interrupts import POLL_S, Background, TimeBudgetError, background
from pytest_ssr.sandbox.supervision.rpc_session import LimitExceededError

_KEPT_BYTES = 256 << 20
"""How much of the replies and the output of calls that have ended is kept."""
_FOLLOWED_S = 60.0
"""How long a client may take to fetch the rest of the output of a call that has ended."""
_FORGOTTEN = Reply(code=ErrorCode.FORGOTTEN, message="the sandbox server no longer keeps the reply to this call")


class Progress(NamedTuple):
    """What has happened in a call since the last look."""

    output: bytes
    """The next part of the output; empty at its end, or if the call is not streamed."""
    reply: Reply | None
    """The reply, once all of the output was seen."""


class RunningCall:
    """A call that runs or has ended."""

    def __init__(self, request: Request) -> None:
        self.operation, self.sandbox = request.arguments.operation, request.sandbox
        self.digest = request.digest()
        self.ended_at = 0.0
        self._output: list[bytes] = []
        self._reply: Reply | None = None
        self._changed = threading.Condition()
        self._watchers: set[Callable[[], None]] = set()
        self._thread: Background[None] | None = None

    @property
    def reply(self) -> Reply | None:
        """The reply; None while the call runs."""
        return self._reply

    def start(self, work: Callable[[], Reply]) -> None:
        """Start the call in a thread."""
        self._thread = background(lambda: self._run(work), name="call")

    def request_stop(self) -> None:
        """Stop the call without waiting for its end."""
        thread = self._thread
        if thread is not None:
            thread.request_stop()

    def stop(self) -> None:
        """Stop the call, and wait until it has ended."""
        thread = self._thread
        if thread is not None:
            thread.stop()

    def add_output(self, data: bytes) -> None:
        """Hand on a part of the output."""
        self._notify(lambda: self._output.append(data))

    def end(self, reply: Reply) -> None:
        """Set the reply."""

        def set_reply() -> None:
            self._reply, self.ended_at = reply, time.monotonic()

        self._notify(set_reply)

    def release(self) -> None:
        """Free what only a running call needs."""
        self._thread, self._output = None, []

    @property
    def kept_bytes(self) -> int:
        """Bytes of the reply and of the output, roughly."""
        with self._changed:
            return sum(map(len, self._output)) + (self._reply.size if self._reply is not None else 0)

    def forget(self) -> None:
        """Keep only that the call was made."""
        with self._changed:
            self._reply = _FORGOTTEN
        self.release()

    def progress(self, received: int) -> Progress:
        """Return what follows the first `received` parts of the output."""
        with self._changed:
            if received < len(self._output):
                return Progress(self._output[received], None)
            return Progress(b"", self._reply)

    async def follow(self, received: int) -> AsyncGenerator[Progress, None]:
        """Yield what follows the first `received` parts of the output, and an empty progress when nothing happens."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop is closed if the server ends first.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)

        self._watchers.add(wake)
        try:
            while True:
                changed.clear()
                progress = self.progress(received)
                if not progress.output and progress.reply is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), POLL_S)
                        continue
                yield progress
                received += bool(progress.output)
                if progress.reply is not None:
                    return
        finally:
            self._watchers.discard(wake)

    def _run(self, work: Callable[[], Reply]) -> None:
        try:
            reply = work()
        except BaseException as error:
            reply = _reply_to_error(error)
        self.end(reply)

    def _notify(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
        for wake in list(self._watchers):
            wake()


class CallTable:
    """The calls of a host by their keys."""

    def __init__(self, kept_s: float) -> None:
        """kept_s: how long the reply of a call is kept."""
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._calls: dict[str, RunningCall] = {}
        self._running: list[RunningCall] = []

    def begin(self, request: Request, make_work: Callable[[RunningCall], Callable[[], Reply]]) -> RunningCall:
        """Return the call with this key; start it if it is new. make_work: returns what a new call does.

        Raises RemoteError if another call has had the key.
        """
        # Outside of the lock: it takes a while for large blobs.
        new = RunningCall(request)
        with self._lock:
            call = self._calls.setdefault(request.key, new)
            if call is new:
                self._running.append(call)
                call.start(make_work(call))
        if call.digest != new.digest:
            raise RemoteError(ErrorCode.KEY_REUSED, "another call has had this key")
        return call

    def get(self, key: str) -> RunningCall | None:
        """Return the call with this key, or None."""
        with self._lock:
            return self._calls.get(key)

    def running(self, sandbox: str | None = None) -> list[RunningCall]:
        """Return the calls that run, of a sandbox or of all."""
        with self._lock:
            self._running = [call for call in self._running if call.reply is None]
            return [call for call in self._running if sandbox in (None, call.sandbox)]

    def tidy(self) -> None:
        """Forget old replies, and the oldest of those that are too large together."""
        now = time.monotonic()
        self.running()
        with self._lock:
            ended = [(key, call) for key, call in self._calls.items() if call.reply is not None]
            for key, call in ended:
                if call.ended_at < now - self._kept_s:
                    del self._calls[key]
                elif call.ended_at < now - _FOLLOWED_S:
                    call.release()
            size = 0
            for _, call in reversed(ended):
                size += call.kept_bytes
                if size > _KEPT_BYTES:
                    call.forget()


def _reply_to_error(error: BaseException) -> Reply:
    if isinstance(error, FileNotFoundError):
        return Reply(code=ErrorCode.FILE_NOT_FOUND, message=str(error))
    if isinstance(error, LimitExceededError):
        return Reply(code=ErrorCode.LIMIT, message=str(error.limit))
    if isinstance(error, RemoteError):
        return Reply(code=error.code, message=str(error))
    if isinstance(error, SandboxUnavailableError):
        return Reply(code=ErrorCode.UNAVAILABLE, message=str(error))
    if isinstance(error, SsrError):
        return Reply(code=ErrorCode.SANDBOX, message=str(error))
    if isinstance(error, KeyboardInterrupt | TimeBudgetError):
        return Reply(code=ErrorCode.CANCELLED, message="the call was cancelled")
    message = describe_unexpected(error) if isinstance(error, Exception) else type(error).__name__
    return Reply(code=ErrorCode.INTERNAL, message=f"the sandbox server failed: {message}")
