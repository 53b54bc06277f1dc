"""Give each request an id, log how it ended, and send the headers that protect pages."""

from __future__ import annotations

import re
import secrets
import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.service.logs import logger
from harness.service.metrics import Metrics
from harness.service.problems import ProblemCode, problem_response

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # With no-referrer, browsers send the forms of our own pages with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestLogMiddleware:
    """The outermost part: what happens inside is logged, and an unexpected exception becomes an answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wanted = Headers(scope=scope).get("x-request-id", "")
        request_id = wanted if _ID.fullmatch(wanted) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status, start, seconds = 0, time.perf_counter(), 0.0

        async def sending(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                # A stream of events lasts for hours after it.
                status, seconds = message["status"], time.perf_counter() - start
                headers = MutableHeaders(raw=list(message["headers"]))
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-ID"] = request_id
                message = {**message, "headers": headers.raw}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, sending)
            except Exception:
                logger().exception("request-failed", method=scope["method"], path=scope["path"])
                if status:
                    raise
                detail = "the service failed; its log has the cause under the request's id"
                await problem_response(ProblemCode.INTERNAL, detail, request_id)(scope, receive, sending)
            finally:
                self._record(scope, status, seconds)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "")
        self._metrics.observe_request(scope["method"], route, status, seconds)
        if scope["path"] in _QUIET_PATHS and status < 400:
            return
        principal = scope["state"].get("principal")
        logger().info(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=round(seconds, 4),
            principal=principal.id if principal is not None else "",
        )
