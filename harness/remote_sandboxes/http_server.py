"""Offer a host over HTTP: one address for calls, one for probes."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import asdict
from types import FrameType

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, StreamingResponse

from harness.models.urls import is_loopback
from harness.remote_sandboxes.calls import RemoteError
from harness.remote_sandboxes.frames import FrameKind, frame
from harness.remote_sandboxes.host import SandboxHost
from harness.remote_sandboxes.messages import Request as Call
from harness.remote_sandboxes.running_calls import Progress, RunningCall
from harness.web import server_config
from pytest_ssr.errors import SsrError

CALLS, HEALTH = "/v1/calls", "/health"
RECEIVED = "received"
"""The query parameter with the number of parts of the output that the client has."""
MEDIA_TYPE = "application/octet-stream"
_GRACE_S = 3
_LARGE_BYTES = 1 << 16
_BROWSER_HEADERS = ("origin", "sec-fetch-site")


class RefusedRequestError(SsrError):
    """A request is refused before it is read."""

    def __init__(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.headers = status, code, headers


def create_app(host: SandboxHost, *, token: str = "", loopback_only: bool = True) -> FastAPI:
    """Return the application. token: what clients have to send; empty for none.

    loopback_only: whether only names of this machine are accepted as the host of a request.
    """
    app = FastAPI(title="pytest-ssr sandbox server", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get(HEALTH)
    async def health(request: Request) -> Response:
        """Return what the host holds; without the token only that it works."""
        counts = asdict(host.counts) if not token or _has_token(request, token) else {}
        return JSONResponse({"status": "up", **counts})

    @app.post(CALLS)
    async def call(request: Request, received: int = 0) -> Response:
        """Make a call, or go on with one that has been sent before."""
        try:
            _require_access(request, token, loopback_only=loopback_only)
            body = await _body(request, host.settings.max_bytes)
            running = await _start(host, body)
        except RefusedRequestError as error:
            return JSONResponse({"code": error.code}, error.status, error.headers)
        except RemoteError as error:
            return JSONResponse({"code": error.code, "detail": str(error)}, 400)
        except ClientDisconnect:
            # Nobody reads the response; the client sends the call again.
            return Response(status_code=400)
        progress = running.follow(max(0, received))
        first = await anext(progress)
        if first.reply is not None:
            # Most calls are short, and a complete response takes fewer packets.
            await progress.aclose()
            return Response(_frame(first), media_type=MEDIA_TYPE)
        return StreamingResponse(_frames(first, progress), media_type=MEDIA_TYPE)

    return app


async def _start(host: SandboxHost, body: bytes) -> RunningCall:
    """Start a call; raises RemoteError."""
    if len(body) < _LARGE_BYTES:
        return host.start(Call.decode(body))
    # It takes a while to decode, and the other calls must go on.
    return await run_in_threadpool(lambda: host.start(Call.decode(body)))


def _require_access(request: Request, token: str, *, loopback_only: bool) -> None:
    if loopback_only and not is_loopback(f"http://{request.headers.get('host', '')}"):
        # A page of another site can have a name that leads to this machine.
        raise RefusedRequestError(403, "foreign-host")
    if any(name in request.headers for name in _BROWSER_HEADERS):
        raise RefusedRequestError(403, "browser")
    if token and not _has_token(request, token):
        raise RefusedRequestError(401, "unauthorized", {"WWW-Authenticate": "Bearer"})
    if request.headers.get("content-type") != MEDIA_TYPE:
        raise RefusedRequestError(415, "unsupported-media-type")


def _has_token(request: Request, token: str) -> bool:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    # Hashes have the same length, so that the comparison takes the same time for every secret.
    return kind.lower() == "bearer" and hmac.compare_digest(_hash(secret.strip()), _hash(token))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


async def _body(request: Request, max_bytes: int) -> bytes:
    """Return the body; raises RefusedRequestError as soon as it is known to be too large."""
    too_large = RefusedRequestError(413, "too-large", {"Connection": "close"})
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
