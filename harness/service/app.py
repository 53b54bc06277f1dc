"""Serve the dashboard of a store: it only reads, on this machine alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from harness.database.records import DatabaseRecords
from harness.service.dashboard.pages import DashboardSettings, dashboard_router, static_files
from harness.service.dashboard.reading import Reads
from harness.service.events import Streams
from harness.service.tracing import start_tracing
from pytest_ssr.errors import StoreError

LOOPBACK = "127.0.0.1"
_HOSTS = [LOOPBACK, "localhost"]
"""Names by which a browser may call the service: a page from elsewhere that resolves to this machine is refused."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(records: DatabaseRecords) -> FastAPI:
    """Return the application that shows the results in these records."""
    reads = Reads(records)
    streams = Streams(reads)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(streams.run())
        yield
        task.cancel()
        await asyncio.to_thread(app.state.stop_tracing)

    app = FastAPI(title="pytest-ssr", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.streams = streams
    app.include_router(dashboard_router(DashboardSettings(records, events="/events")))
    app.mount("/static", static_files())

    @app.get("/events")
    def events(request: Request, after: str = "") -> Response:
        if streams.is_full:
            return PlainTextResponse("too many event streams are open", 503, headers={"Retry-After": "10"})
        last = request.headers.get("Last-Event-ID", after)
        position = int(last) if last.isdecimal() and len(last) < 19 else None
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(streams.follow(position), media_type="text/event-stream", headers=headers)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "up"}

    @app.get("/ready")
    def ready() -> dict[str, str]:
        reads.last_event()
        return {"status": "ready"}

    @app.exception_handler(StoreError)
    def unusable(_: Request, error: StoreError) -> Response:
        problem = {"type": "about:blank", "title": "the store cannot be read", "status": 503, "detail": str(error)}
        return JSONResponse(problem, 503, headers={"Retry-After": "5"}, media_type="application/problem+json")

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # No database has such names, and PostgreSQL refuses even to look for them.
        has_nul = "\0" in request.url.path or "%00" in request.url.query
        response = PlainTextResponse("not found", 404) if has_nul else await call_next(request)
        response.headers.update(_HEADERS)
        return response

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)
    app.state.stop_tracing = start_tracing(app)
    return app
