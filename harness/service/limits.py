"""Limit what a request sends, and do not send again what its client has."""

from __future__ import annotations

import hashlib

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.service.problems import ProblemCode, problem_response

MAX_BODY_BYTES = 1 << 20
_NOT_MODIFIED = 304
_OK = 200
_TOO_LARGE = 413
_CLOSE = {"Connection": "close"}
"""What follows in the body is not read, so that the connection cannot be used again."""


class BodyLimitMiddleware:
    """Refuse bodies that are too large: at once if their size is announced, else while they are read."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size = 0

        async def receiving() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                # FastAPI turns any other exception into an answer of its own.
                raise HTTPException(_TOO_LARGE, headers=_CLOSE)
            return message

        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            detail = f"the body has more than {self._max_bytes} bytes"
            request_id = scope.get("state", {}).get("request_id", "")
            response = problem_response(ProblemCode.TOO_LARGE, detail, request_id, headers=_CLOSE)
            await response(scope, receive, send)
            return
        await self._app(scope, receiving, send)


class EntityTagMiddleware:
    """Give JSON an ETag, and answer 304 to a client that has the same."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None
        parts: list[bytes] = []

        async def sending(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                is_json = headers.get("content-type", "").startswith("application/json")
                if message["status"] == _OK and is_json and "etag" not in headers:
                    start = message
                    return
            elif start is not None and message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    await _send_tagged(start, b"".join(parts), known, send)
                return
            await send(message)

        await self._app(scope, receive, sending)


def is_known(etag: str, if_none_match: str) -> bool:
    """Return whether a client has a version already. etag: quoted; if_none_match: the header of its request."""
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return etag.removeprefix("W/") in known or "*" in known


async def _send_tagged(start: Message, body: bytes, known: str, send: Send) -> None:
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = MutableHeaders(raw=list(start["headers"]))
    headers["ETag"] = etag
    headers.setdefault("Cache-Control", "private, no-cache")
    if is_known(etag, known):
        del headers["content-length"], headers["content-type"]
        await send({"type": "http.response.start", "status": _NOT_MODIFIED, "headers": headers.raw})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({**start, "headers": headers.raw})
    await send({"type": "http.response.body", "body": body})
