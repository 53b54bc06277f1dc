"""Make the web application: the API, the dashboard, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer

from harness.database.records import DatabaseRecords
from harness.service.access import AccessMiddleware, AccessRules, form_token
from harness.service.api import events, results, summaries
from harness.service.api.parts import require
from harness.service.limits import MAX_BODY_BYTES, BodyLimitMiddleware, EntityTagMiddleware
from harness.service.metrics import Metrics
from harness.service.problems import RESPONSES, ProblemDetails, add_problem_handlers
from harness.service.queries import Queries
from harness.service.request_log import RequestLogMiddleware
from harness.service.streams import MAX_STREAMS, Streams
from harness.service.tokens import Scope
from harness.service.tracing import start_tracing
from pytest_ssr import __version__

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a service serves, and to whom."""

    records: DatabaseRecords
    access: AccessRules
    roots: Sequence[Path] = ()
    """Folders whose projects may be added."""
    max_body_bytes: int = MAX_BODY_BYTES
    max_streams: int = MAX_STREAMS


def create_app(settings: ServiceSettings) -> FastAPI:
    """Return the application; it has no state that the database does not have."""
    queries = Queries(settings.records.engine, settings.records.blobs)
    streams = Streams(queries, max_streams=settings.max_streams)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(streams.run())
        try:
            yield
        finally:
            streams.close()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    app = FastAPI(
        title="pytest-ssr",
        version=__version__,
        description="Self-play SWE-RL as a service: projects, jobs, bugs, attempts, leaderboards and exports.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.queries, app.state.streams = queries, streams
    app.state.metrics = Metrics(settings.records.engine, lambda: streams.count)
    app.add_middleware(EntityTagMiddleware)
    app.add_middleware(BodyLimitMiddleware, max_bytes=settings.max_body_bytes)
    app.add_middleware(AccessMiddleware, rules=settings.access)
    app.add_middleware(RequestLogMiddleware)
    add_problem_handlers(app)
    app.include_router(_probes())
    app.include_router(_api())
    _add_dashboard(app, settings)
    start_tracing(app)
    return app


def _api() -> APIRouter:
    # The scheme is for the description; the middleware has checked the token.
    bearer = HTTPBearer(auto_error=False, description="from `ssr serve token create`")
    api = APIRouter(prefix=PREFIX, dependencies=[Depends(bearer), Depends(require(Scope.READ))], responses=RESPONSES)
    for part in (events, results, summaries):
        api.include_router(part.router)
    return api


def _probes() -> APIRouter:
    router = APIRouter()

    @router.get("/health", tags=["health"])
    def health() -> dict[str, str]:
        """Answer while the process works."""
        return {"status": "ok"}

    @router.get("/ready", tags=["health"], responses={503: {"model": ProblemDetails}})
    def ready(request: Request) -> JSONResponse:
        """Answer 200 while the database can be used."""
        request.app.state.queries.ping()
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    def metrics(request: Request) -> Response:
        """Return metrics in the format of Prometheus."""
        found: Metrics = request.app.state.metrics
        return Response(found.text(), media_type=found.content_type)

    return router


def _add_dashboard(app: FastAPI, settings: ServiceSettings) -> None:
    from harness.service.dashboard.pages import DashboardSettings, dashboard_router, static_files

    app.mount("/static", static_files())
    app.include_router(dashboard_router(DashboardSettings(settings.records, f"{PREFIX}/events", form_token)))
