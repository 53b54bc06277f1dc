"""Act on one open sandbox of a host."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.remote_sandboxes.calls import (
    Answer,
    Arguments,
    Converse,
    Diff,
    EndSession,
    ErrorCode,
    Exec,
    Read,
    RemoteError,
    Remove,
    Write,
)
from harness.remote_sandboxes.messages import Reply, Request, reply_to_exec
from harness.remote_sandboxes.tree_cache import TreeCache
from harness.remote_sandboxes.tree_diff import diff_of
from pytest_ssr.sandbox.protocol import MIB, Sandbox
from pytest_ssr.sandbox.supervision.output_listener import listening
from pytest_ssr.sandbox.supervision.rpc_session import Session, SupportsRpcSessions

_MAX_READ_BYTES = 64 * MIB


@dataclass(eq=False)
class OpenSandbox:
    """A sandbox, its lease, and the calls that it understands."""

    id: str
    sandbox: Sandbox
    tree: str
    cache: TreeCache
    lease_s: float
    search_path: str
    """PATH of commands whose environment has none; empty for the sandbox's own."""
    expires_at: float = math.inf
    session: Session | None = None
    is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self) -> None:
        """Let the lease begin again."""
        self.expires_at = time.monotonic() + self.lease_s

    def make_call(self, request: Request, add_output: Callable[[bytes], None]) -> Reply:
        """Make a call; raises its error."""
        act: Callable[[OpenSandbox, Request, Callable[[bytes], None]], Reply] = _ACTS[type(request.arguments)]
        return act(self, request, add_output)

    def close(self) -> None:
        """Remove the sandbox; its calls have ended. Idempotent."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        try:
            self.end_session()
            self.sandbox.close()
        finally:
            self.cache.release(self.tree)

    def end_session(self) -> None:
        """End the long-running command, if there is one; nobody waits for its answer."""
        session, self.session = self.session, None
        if session is not None:
            session.close()

    @property
    def _has_session(self) -> bool:
        return self.session is not None and self.session.is_open

    def _exec(self, request: Request, add_output: Callable[[bytes], None]) -> Reply:
        call = request.arguments
        assert isinstance(call, Exec)
        if self._has_session:
            raise RemoteError(ErrorCode.SANDBOX, "nothing else can run beside the long-running command")
        streamed = 0

        def count(data: bytes) -> None:
            nonlocal streamed
            streamed += len(data)
            add_output(data)

        with listening(count) if call.streams else contextlib.nullcontext():
            result = self.sandbox.exec(
                call.argv,
                limits=call.limits,
                env=self._variables(call.env),
                stdin=request.blobs[0],
                cwd=call.cwd,
            )
        if call.streams and not streamed:
            # Not every sandbox hands output on while the command runs.
            add_output(result.stdout + result.stderr)
        return reply_to_exec(result)

    def _variables(self, env: tuple[tuple[str, str], ...] | None) -> Mapping[str, str]:
        defaults = {"PATH": self.search_path} if self.search_path else {}
        return {**defaults, **dict(env or ())}

    def _read(self, request: Request, _: Callable[[bytes], None]) -> Reply:
        call = request.arguments
        assert isinstance(call, Read)
        return Reply(blobs=(self.sandbox.read(call.path, max_bytes=min(call.max_bytes, _MAX_READ_BYTES)),))

    def _write(self, request: Request, _: Callable[[bytes], None]) -> Reply:
        call = request.arguments
        assert isinstance(call, Write)
        self.sandbox.write(call.path, request.blobs[0], executable=call.executable)
        return Reply()

    def _remove(self, request: Request, _: Callable[[bytes], None]) -> Reply:
        call = request.arguments
        assert isinstance(call, Remove)
        self.sandbox.remove(call.path)
        return Reply()

    def _diff(self, _: Request, __: Callable[[bytes], None]) -> Reply:
        return Reply(blobs=(diff_of(self.sandbox, self.cache.entries(self.tree), self.cache),))

    def _converse(self, request: Request, _: Callable[[bytes], None]) -> Reply:
        call = request.arguments
        assert isinstance(call, Converse)
        if not isinstance(self.sandbox, SupportsRpcSessions) or self._has_session:
            raise RemoteError(ErrorCode.SANDBOX, "the sandbox cannot start a long-running command now")
        env = self._variables(call.env)
        self.session = self.sandbox.converse(call.argv, limits=call.limits, env=env)
        return Reply()

    def _answer(self, request: Request, _: Callable[[bytes], None]) -> Reply:
        call, session = request.arguments, self.session
        assert isinstance(call, Answer)
        if session is None or not session.is_open:
            raise RemoteError(ErrorCode.SANDBOX, "the sandbox has no long-running command")
        if request.blobs[0]:
            try:
                session.send(json.loads(request.blobs[0]))
            except ValueError:
                raise RemoteError(ErrorCode.MALFORMED, "the request is not JSON") from None
        record, raw = session.answer(wall_s=call.wall_s)
        return Reply(blobs=(json.dumps(record).encode(), raw))

    def _end_session(self, _: Request, __: Callable[[bytes], None]) -> Reply:
        self.end_session()
        return Reply()


_ACTS: Mapping[type[Arguments], Callable[..., Reply]] = {
    Exec: OpenSandbox._exec,
    Read: OpenSandbox._read,
    Write: OpenSandbox._write,
    Remove: OpenSandbox._remove,
    Diff: OpenSandbox._diff,
    Converse: OpenSandbox._converse,
    Answer: OpenSandbox._answer,
    EndSession: OpenSandbox._end_session,
}


def search_path(directory: str) -> str:
    """Return PATH with a directory before those of the system."""
    return os.pathsep.join([directory, "/usr/local/bin", "/usr/bin", "/bin"])
