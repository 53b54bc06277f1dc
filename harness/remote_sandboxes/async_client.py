"""Open sandboxes of a sandbox server from asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from harness.remote_sandboxes import rest
from harness.remote_sandboxes.calls import (
    SCRIPT,
    AddTree,
    Arguments,
    Cancel,
    Close,
    Describe,
    Diff,
    ErrorCode,
    Exec,
    Heartbeat,
    HostDescription,
    Missing,
    Open,
    Opened,
    PutFiles,
    Read,
    RemoteError,
    TreeEntry,
    Write,
    pairs_of,
)
from harness.remote_sandboxes.connection import batches
from harness.remote_sandboxes.frames import FrameKind, FrameReader
from harness.remote_sandboxes.http_transport import CALLS, MEDIA_TYPE, RECEIVED, RETRIED, client_options
from harness.remote_sandboxes.messages import Reply, Request
from harness.remote_sandboxes.transport import RETRY_S, UnreachableError
from harness.remote_sandboxes.trees import ROOT, Tree, TreeReader, tree_id
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limits
from pytest_ssr.sandbox.supervision.output_listener import OutputListener

_PAUSE_S = 0.5
_SILENCE_S = 60.0
"""A server answers sooner, if only that the call still runs."""
_CLEAN_UP_S = 5.0
_BEATS_PER_LEASE = 4
_EMPTY = (TreeEntry(ROOT, 0o755, 0),)


class AsyncSandboxClient:
    """A client of one sandbox server; an asynchronous context manager that closes its sandboxes on exit.

        async with AsyncSandboxClient("http://node-1:8701") as client:
            async with await client.open(Path("project")) as sandbox:
                done = await sandbox.exec(["python3", "-m", "pytest"])

    A cancelled task cancels its call on the server. Use `asyncio.timeout` to limit how long to wait.
    """

    def __init__(self, url: str, *, token: str | None = None, retry_s: float = RETRY_S) -> None:
        """token: None for that of SSR_SANDBOX_TOKEN. retry_s: how long the server may be out of reach."""
        self.url, self._retry_s = url.rstrip("/"), retry_s
        self._client = httpx.AsyncClient(**client_options(url, token, rest.MEDIA_TYPE, _SILENCE_S))
        self._reader = TreeReader()
        self._open: set[str] = set()
        self._heart: asyncio.Task[None] | None = None

    async def describe(self) -> HostDescription:
        """Return what the server offers; raises SandboxError."""
        return (await self.call(Describe())).read(HostDescription)

    async def open(
        self,
        tree: str | Path | None = None,
        *,
        mount_at: str = "/workspace",
        readable: Sequence[str] = (),
        hidden: Sequence[str] = (),
    ) -> AsyncSandbox:
        """Open a sandbox on a folder, or on an empty tree; waits for a free slot. Raises SandboxError."""
        if self._heart is None:
            lease_s = (await self._when_admitted(Describe())).read(HostDescription).lease_s
            self._heart = asyncio.create_task(self._beat(lease_s / _BEATS_PER_LEASE))
        described = Tree(Path(), _EMPTY, tree_id(_EMPTY))
        if tree is not None:
            described = await asyncio.to_thread(self._reader.read, Path(tree))
        while missing := (await self.call(AddTree(described.entries))).read(Missing).digests:
            parts = batches(described, set(missing))
            while part := await asyncio.to_thread(next, parts, None):
                await self.call(PutFiles(tuple(part[0])), *part[1])
        reply = await self._when_admitted(Open(described.id, mount_at, tuple(readable), tuple(hidden)))
        sandbox = AsyncSandbox(self, reply.read(Opened))
        self._open.add(sandbox.id)
        return sandbox

    async def call(
        self, arguments: Arguments, *blobs: bytes, sandbox: str = "", on_output: OutputListener | None = None
    ) -> Reply:
        """Make a call; raises the error that the server reports. on_output: called with parts of its output."""
        request = Request(arguments, sandbox, blobs)
        try:
            reply = await self._send(request, on_output)
        except asyncio.CancelledError:
            # Nobody waits for the reply.
            await self._clean_up(Request(Cancel(request.key)))
            raise
        return reply.require_success()

    async def close_sandbox(self, identity: str) -> None:
        """Close a sandbox; if the server is out of reach, the sandbox ends with its lease."""
        self._open.discard(identity)
        await self._clean_up(Request(Close(), identity))

    async def aclose(self) -> None:
        """Close all sandboxes and the connections."""
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heart
        for identity in list(self._open):
            await self.close_sandbox(identity)
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.aclose()

    async def _when_admitted(self, arguments: Arguments) -> Reply:
        while True:
            try:
                return await self.call(arguments)
            except RemoteError as error:
                if error.code is not ErrorCode.BUSY:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _send(self, request: Request, on_output: OutputListener | None = None) -> Reply:
        """Send a call, again with the same key after a lost connection or while it runs, until its reply is there."""
        attempt = _InJson(self._client, self.url, request)
        if on_output is not None:
            attempt = _InFrames(self._client, self.url, request, on_output)
        deadline = time.monotonic() + self._retry_s
        while True:
            attempt.made_progress = False
            try:
                status, reply = await attempt.make()
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
            else:
                if reply is not None:
                    return reply
                if status == rest.RUNS:
                    deadline = time.monotonic() + self._retry_s
                    continue
                reason = f"status {status}"
                if status not in RETRIED:
                    raise SandboxUnavailableError(f"{self.url} is not a sandbox server: {reason}")
            if attempt.made_progress:
                deadline = time.monotonic() + self._retry_s
            if time.monotonic() > deadline:
                raise UnreachableError(f"the sandbox server {self.url} cannot be reached: {reason}")
            await asyncio.sleep(_PAUSE_S)

    async def _clean_up(self, request: Request) -> None:
        with contextlib.suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(_CLEAN_UP_S):
                await self._send(request)

    async def _beat(self, pause_s: float) -> None:
        """Renew the leases of the open sandboxes."""
        while True:
            await asyncio.sleep(pause_s)
            if self._open:
                await self._clean_up(Request(Heartbeat(tuple(self._open))))


class _InJson:
    """A call in JSON, which is sent until its reply is there."""

    def __init__(self, client: httpx.AsyncClient, url: str, request: Request) -> None:
        self._client, self._kind = client, type(request.arguments)
        self._method, path = rest.route_of(self._kind)
        self._url = url + path.format(sandbox=request.sandbox)
        self._body, self._headers = rest.encode_request(request), {rest.KEY_HEADER: request.key}
        self.made_progress = False
        """Whether a part of the response has arrived before the connection was lost."""

    async def make(self) -> tuple[int, Reply | None]:
        """Send the call once; return the status of the response, and the reply if it is there."""
        response = await self._client.request(self._method, self._url, content=self._body, headers=self._headers)
        if response.status_code == rest.RUNS:
            return response.status_code, None
        return response.status_code, rest.decode_reply(self._kind, response.status_code, response.content)


class _InFrames(_InJson):
    """A call in frames, which carry output while a command runs."""

    def __init__(self, client: httpx.AsyncClient, url: str, request: Request, on_output: OutputListener) -> None:
        super().__init__(client, url, request)
        self._url, self._body, self._headers = url + CALLS, request.encode(), {"Content-Type": MEDIA_TYPE}
        self._on_output, self._received = on_output, 0

    async def make(self) -> tuple[int, Reply | None]:
        """Send the call once; raises httpx.HTTPError if the response ends before the reply."""
        parameters, frames = {RECEIVED: self._received}, FrameReader()
        async with self._client.stream(
            "POST", self._url, params=parameters, content=self._body, headers=self._headers
        ) as response:
            if response.status_code != httpx.codes.OK:
                return response.status_code, rest.decode_reply(self._kind, response.status_code, await response.aread())
            if response.headers.get("content-type") != MEDIA_TYPE:
                return response.status_code, None
            async for data in response.aiter_raw():
                for kind, content in frames.feed(data):
                    self.made_progress = True
                    if kind is FrameKind.REPLY:
                        return response.status_code, Reply.decode(content)
                    if kind is FrameKind.OUTPUT:
                        self._received += 1
                        self._on_output(content)
        raise httpx.RemoteProtocolError("the response ended before the reply")


class AsyncSandbox:
    """An open sandbox; an asynchronous context manager that closes the sandbox on exit."""

    def __init__(self, client: AsyncSandboxClient, opened: Opened) -> None:
        self._client = client
        self.id, self.root, self.scratch = opened.id, opened.root, opened.scratch

    async def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
        on_output: OutputListener | None = None,
    ) -> ExecResult:
        """Run a command and return its result; see `pytest_ssr.sandbox.protocol.Sandbox`.

        on_output: called with parts of the output while the command runs.
        """
        call = Exec(tuple(argv), limits or Limits(), pairs_of(env), cwd, streams=on_output is not None)
        return (await self._client.call(call, stdin, sandbox=self.id, on_output=on_output)).exec_result()

    async def evaluate(
        self,
        script: bytes,
        *,
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OutputListener | None = None,
    ) -> ExecResult:
        """Write a script to the scratch directory, run it in the tree, and return its result."""
        path = f"{self.scratch}/{SCRIPT}"
        await self.write(path, script, executable=True)
        return await self.exec([path], limits=limits, env=env, on_output=on_output)

    async def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return the content of a regular file; raises FileNotFoundError, SandboxError."""
        return (await self._client.call(Read(path, max_bytes), sandbox=self.id)).blobs[0]

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; raises SandboxError."""
        await self._client.call(Write(path, executable), data, sandbox=self.id)

    async def diff(self) -> Patch:
        """Return what has changed in the tree since the sandbox was opened, without caches and `.git`."""
        return Patch.parse((await self._client.call(Diff(), sandbox=self.id)).blobs[0])

    async def close(self) -> None:
        """Kill running commands and remove every trace; idempotent."""
        await self._client.close_sandbox(self.id)

    async def __aenter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.close()
