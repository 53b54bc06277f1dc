"""Offer a host over HTTP: one address for calls in frames, one for each call in JSON, one for probes."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import secrets
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from types import FrameType

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, StreamingResponse

from harness.models.urls import is_loopback
from harness.other_systems import SERVER_ROUTES
from harness.remote_sandboxes import rest
from harness.remote_sandboxes.calls import ARGUMENTS, Arguments, ErrorCode, Refusal, RemoteError
from harness.remote_sandboxes.frames import FrameKind, frame
from harness.remote_sandboxes.host import SandboxHost
from harness.remote_sandboxes.messages import Reply
from harness.remote_sandboxes.messages import Request as Call
from harness.remote_sandboxes.running_calls import Progress, RunningCall
from harness.web import server_config

CALLS, HEALTH, DESCRIPTION = "/v1/calls", "/health", "/openapi.json"
RECEIVED = "received"
"""The query parameter with the number of parts of the output that the client has."""
MEDIA_TYPE = "application/octet-stream"
_GRACE_S = 3
_HOLD_S = 25.0
"""How long a response in JSON may wait for the end of its call; proxies give up after a minute or less."""
_HOLDS_PER_LEASE = 2
_LARGE_BYTES = 1 << 16
_BROWSER_HEADERS = ("origin", "sec-fetch-site")
_REFUSAL_HEADERS = {
    ErrorCode.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    ErrorCode.TOO_LARGE: {"Connection": "close"},
}


def create_app(host: SandboxHost, *, token: str = "", loopback_only: bool = True) -> FastAPI:
    """Return the application. token: what clients have to send; empty for none.

    loopback_only: whether only names of this machine are accepted as the host of a request.
    """
    app = FastAPI(title="pytest-ssr sandbox server", docs_url=None, redoc_url=None, openapi_url=None)

    async def start(request: Request, media_type: str, decode: Callable[[bytes], Call]) -> RunningCall:
        """Start the call of a request, or find the one that it has started before; raises RemoteError."""
        _require_access(request, token, media_type, loopback_only=loopback_only)
        body = await _body(request, host.settings.max_bytes)
        if len(body) < _LARGE_BYTES:
            return host.start(decode(body))
        # It takes a while to decode, and the other calls must go on.
        return await run_in_threadpool(lambda: host.start(decode(body)))

    @app.get(HEALTH)
    async def health(request: Request) -> Response:
        """Return what the host holds; without the token only that it works."""
        counts = asdict(host.counts) if not token or _has_token(request, token) else {}
        return JSONResponse({"status": "up", **counts})

    @app.post(CALLS)
    async def call(request: Request, received: int = 0) -> Response:
        """Make a call, or go on with one that has been sent before."""
        running = await start(request, MEDIA_TYPE, Call.decode)
        progress = running.follow(max(0, received))
        first = await anext(progress)
        if first.reply is not None:
            # Most calls are short, and a complete response takes fewer packets.
            await progress.aclose()
            return Response(_frame(first), media_type=MEDIA_TYPE)
        return StreamingResponse(_frames(first, progress), media_type=MEDIA_TYPE)

    def call_in_json(kind: type[Arguments], *, has_key: bool) -> Callable[[Request], Awaitable[Response]]:
        async def make(request: Request) -> Response:
            sandbox = request.path_params.get("sandbox", "")
            key = request.headers.get(rest.KEY_HEADER, "") if has_key else secrets.token_urlsafe()

            def decode(body: bytes) -> Call:
                return rest.decode_request(kind, body, sandbox=sandbox, key=key)

            running = await start(request, rest.MEDIA_TYPE, decode)
            # Without a key of its own, a client could not ask for the reply again.
            hold_s = min(_HOLD_S, host.settings.lease_s / _HOLDS_PER_LEASE) if has_key else math.inf
            reply = await _reply(running, hold_s)
            if reply is None:
                return JSONResponse({}, rest.RUNS)
            status, content = await run_in_threadpool(rest.encode_reply, kind, reply)
            return Response(content, status, media_type=rest.MEDIA_TYPE)

        return make

    for kind in ARGUMENTS.values():
        method, path = rest.route_of(kind)
        app.add_api_route(path, call_in_json(kind, has_key=method == rest.POST), methods=[method])

    for path, here in SERVER_ROUTES.items():
        app.add_api_route(path, _elsewhere(path, here), methods=[rest.GET, rest.POST])

    @app.get(DESCRIPTION)
    async def description() -> Response:
        """Return the description of the calls in JSON."""
        return JSONResponse(rest.openapi())

    @app.exception_handler(RemoteError)
    async def refuse(_: Request, error: RemoteError) -> Response:
        """Say why a call was not started."""
        refusal = Refusal(error.code, str(error))
        return JSONResponse(asdict(refusal), rest.STATUSES[error.code], _REFUSAL_HEADERS.get(error.code))

    @app.exception_handler(ClientDisconnect)
    async def give_up(_: Request, __: ClientDisconnect) -> Response:
        """Return anything: nobody reads the response, and the client sends the call again."""
        return Response(status_code=400)

    return app


def _elsewhere(path: str, here: str) -> Callable[[], Awaitable[Response]]:
    async def refuse() -> Response:
        raise RemoteError(ErrorCode.OTHER_SYSTEM, f"{path} is an address of another system; {here} does the same here")

    return refuse


async def _reply(running: RunningCall, hold_s: float) -> Reply | None:
    """Return the reply of a call, or None if it still runs after that time."""
    deadline = time.monotonic() + hold_s
    async with contextlib.aclosing(running.follow(sys.maxsize)) as following:
        async for progress in following:
            if progress.reply is not None or time.monotonic() > deadline:
                return progress.reply
    return None


def _require_access(request: Request, token: str, media_type: str, *, loopback_only: bool) -> None:
    """Raise RemoteError for a request that must not be read."""
    if loopback_only and not is_loopback(f"http://{request.headers.get('host', '')}"):
        # A page of another site can have a name that leads to this machine.
        raise RemoteError(ErrorCode.FOREIGN_HOST, "the server answers only to names of this machine")
    if any(name in request.headers for name in _BROWSER_HEADERS):
        raise RemoteError(ErrorCode.BROWSER, "the server answers no browser")
    if token and not _has_token(request, token):
        raise RemoteError(ErrorCode.UNAUTHORIZED, "the token is missing or wrong")
    if request.method == rest.POST and request.headers.get("content-type", "").partition(";")[0] != media_type:
        raise RemoteError(ErrorCode.MEDIA_TYPE, f"the content type of a call here is {media_type}")


def _has_token(request: Request, token: str) -> bool:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    # Hashes have the same length, so that the comparison takes the same time for every secret.
    return kind.lower() == "bearer" and hmac.compare_digest(_hash(secret.strip()), _hash(token))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


async def _body(request: Request, max_bytes: int) -> bytes:
    """Return the body; raises RemoteError as soon as it is known to be too large."""
    too_large = RemoteError(ErrorCode.TOO_LARGE, f"a call has at most {max_bytes} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


async def _frames(first: Progress, following: AsyncIterator[Progress]) -> AsyncIterator[bytes]:
    yield _frame(first)
    async for progress in following:
        yield _frame(progress)


def _frame(progress: Progress) -> bytes:
    if progress.output:
        return frame(FrameKind.OUTPUT, progress.output)
    if progress.reply is not None:
        return frame(FrameKind.REPLY, progress.reply.encode())
    return frame(FrameKind.ALIVE)


class _Server(uvicorn.Server):
    """Stops the host as soon as the end is requested: its calls would otherwise be waited for."""

    def __init__(self, config: uvicorn.Config, host: SandboxHost) -> None:
        super().__init__(config)
        self._host = host

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the calls, then the server; a second signal does not wait for requests."""
        threading.Thread(target=self._host.close, name="ssr-closing").start()
        # The signal is not raised again at the end, as uvicorn would: to be told to end is no failure.
        self.force_exit = self.should_exit
        self.should_exit = True


def run(app: FastAPI, host: SandboxHost, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and remove all sandboxes."""
    # Nothing here is a WebSocket.
    config = server_config(app, grace_s=_GRACE_S, ws="none")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _Server(config, host).run(sockets=[listening])
    finally:
        host.close()
