"""A sandbox on another machine, which looks like one on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from harness.remote_sandboxes.calls import (
    SCRIPT,
    Answer,
    Converse,
    Diff,
    EndSession,
    ErrorCode,
    Exec,
    Opened,
    Read,
    RemoteError,
    Remove,
    Write,
    pairs_of,
)
from harness.remote_sandboxes.connection import Connection
from harness.remote_sandboxes.messages import Reply
from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import uninterrupted
from pytest_ssr.patch import Patch
from pytest_ssr.records.decoding import json_object
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limits
from pytest_ssr.sandbox.supervision.output_listener import OutputListener
from pytest_ssr.sandbox.supervision.rpc_session import LimitExceededError


class RemoteSandbox:
    """An open sandbox of a host. A connection that is lost for good is a SandboxError, never a result."""

    def __init__(self, connection: Connection, opened: Opened) -> None:
        self._connection, self._id = connection, opened.id
        self.root, self.scratch = opened.root, opened.scratch
        self.built = frozenset(opened.built)
        self._is_closed = False

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
        on_output: OutputListener | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. on_output: called with parts of the output while the command runs."""
        call = Exec(tuple(argv), limits, pairs_of(env), cwd, streams=on_output is not None)
        return self._call(call, stdin, on_output=on_output).exec_result()

    def evaluate(
        self,
        script: bytes,
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        on_output: OutputListener | None = None,
    ) -> ExecResult:
        """Write a script to the scratch directory, run it in the tree, and return its result."""
        path = f"{self.scratch}/{SCRIPT}"
        self.write(path, script, executable=True)
        return self.exec([path], limits=limits, env=env, on_output=on_output)

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        return _blob(self._call(Read(path, max_bytes)))

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        self._call(Write(path, executable), data)

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        self._call(Remove(path))

    def diff(self) -> Patch:
        """Return what has changed in the tree since the sandbox was opened, without caches and `.git`."""
        return Patch.parse(_blob(self._call(Diff())))

    @uninterrupted()
    def close(self) -> None:
        """Kill running commands and remove every trace; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.close_sandbox(self._id)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _call(self, arguments: Any, *blobs: bytes, on_output: OutputListener | None = None) -> Reply:
        if self._is_closed:
            raise SandboxError("the sandbox is closed")
        return self._connection.call(arguments, *blobs, sandbox=self._id, on_output=on_output)


class RemoteRpcSandbox(RemoteSandbox):
    """An open sandbox of a host that supports long-running commands; see SupportsRpcSessions."""

    def __init__(self, connection: Connection, opened: Opened) -> None:
        super().__init__(connection, opened)
        self.lower, self.private = opened.lower, opened.private

    def converse(
        self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None
    ) -> RemoteRpcSession:
        """Start a long-running command; see SupportsRpcSessions."""
        self._call(Converse(tuple(argv), limits, pairs_of(env)))
        return RemoteRpcSession(self._connection, self._id)


class RemoteRpcSession:
    """A session with a long-running command of a host; a request travels with the wait for its response."""

    def __init__(self, connection: Connection, sandbox: str) -> None:
        """sandbox: its id."""
        self._connection, self._sandbox, self._request = connection, sandbox, b""
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether the session accepts requests."""
        return self._is_open

    def send(self, record: Mapping[str, Any]) -> None:
        """Send a request, together with the next `answer`."""
        self._request = json.dumps(record).encode()

    def answer(self, *, wall_s: float) -> tuple[dict[str, Any], bytes]:
        """Wait for the response; raises LimitExceededError at a limit, SandboxError if the command ended or failed."""
        request, self._request = self._request, b""
        try:
            reply = self._connection.call(Answer(wall_s), request, sandbox=self._sandbox)
        except (LimitExceededError, SandboxError):
            self._is_open = False
            raise
        record = json_object(reply.blobs[0]) if len(reply.blobs) == 2 else None
        if record is None:
            raise RemoteError(ErrorCode.MALFORMED, "the reply of the sandbox server is incomplete")
        return record, reply.blobs[1]

    @uninterrupted()
    def close(self) -> None:
        """End the command and its descendants; idempotent."""
        if self._is_open:
            self._is_open = False
            self._connection.clean_up(EndSession(), sandbox=self._sandbox)

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()


def _blob(reply: Reply) -> bytes:
    if len(reply.blobs) != 1:
        raise RemoteError(ErrorCode.MALFORMED, "the reply of the sandbox server is incomplete")
    return reply.blobs[0]
