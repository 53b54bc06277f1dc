"""Show problems as pages to browsers, and as problem details to programs."""

from __future__ import annotations

import json

from fastapi.responses import HTMLResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.service.api import PREFIX
from harness.service.dashboard.pages import Problem
from harness.service.dashboard.rendering import render
from harness.service.problems import MEDIA_TYPE

_OF_THE_BODY = ("content-type", "content-length")
_UNAVAILABLE = 503


class ProblemPageMiddleware:
    """Turn problem details into a page for a browser that wants to show one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        wants_page = scope["type"] == "http" and "text/html" in Headers(scope=scope).get("accept", "")
        if not wants_page or scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def sending(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                if Headers(raw=message["headers"]).get("content-type", "").startswith(MEDIA_TYPE):
                    start = message
                    return
            elif start is not None:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _page(start, body, refreshes=scope["method"] == "GET")(scope, receive, send)
                return
            await send(message)

        await self._app(scope, receive, sending)


def _page(start: Message, body: bytes, *, refreshes: bool) -> HTMLResponse:
    """Return a problem as a page; the request's id is shown, because the log has the cause under it.

    refreshes: whether it may be loaded again, when the service can be used again.
    """
    problem, status = json.loads(body), int(start["status"])
    html = render(
        "problem.html",
        page=Problem(str(problem["title"]).capitalize(), str(problem["detail"]), str(problem["request_id"])),
        page_name="",
        here="",
        events="",
        has_login=False,
        notices=(),
        refreshes=refreshes and status == _UNAVAILABLE,
    )
    headers = dict(Headers(raw=start["headers"]))
    kept = {name: value for name, value in headers.items() if name not in _OF_THE_BODY}
    return HTMLResponse(html, status, headers={**kept, "cache-control": "no-store"})
