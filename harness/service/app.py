"""Make the web application: the dashboard, the API, metrics and probes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel

from harness.database.engine import impatient
from harness.database.records import DatabaseRecords
from harness.service.access import AccessMiddleware, AccessRules
from harness.service.api import events, results, summaries, work
from harness.service.api.parts import require, require_known_parameters
from harness.service.dashboard.pages import Pages, dashboard_router, static_files
from harness.service.dashboard.problem_pages import ProblemPageMiddleware
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.work_pages import work_router
from harness.service.health import Trouble, troubles
from harness.service.limits import MAX_BODY_BYTES, BodyLimitMiddleware, EntityTagMiddleware
from harness.service.metrics import Metrics
from harness.service.problems import RESPONSES, add_problem_handlers
from harness.service.projects import Projects
from harness.service.queue import JobQueue
from harness.service.rates import failed_logins
from harness.service.registered_models import RegisteredModels
from harness.service.request_log import RequestLogMiddleware
from harness.service.sessions import Sessions, login_router
from harness.service.streams import MAX_STREAMS, Streams
from harness.service.tokens import Scope, Tokens
from harness.service.tracing import start_tracing
from harness.settings.service import MODEL_KEYS
from pytest_ssr import __version__

LOOPBACK = "127.0.0.1"
_DATABASE_WAIT_S = 5.0
"""A request that waits has a thread, of which there are 40."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """To whom a service answers, and how much."""

    access: AccessRules = field(default_factory=AccessRules)
    roots: Sequence[Path] = ()
    """Folders whose projects may be added."""
    model_keys: Sequence[str] = MODEL_KEYS
    """Patterns of the variables whose keys the test of a registered model may use."""
    database_wait_s: float = _DATABASE_WAIT_S
    """How long a request waits for other writers of SQLite, before the service is unavailable for it."""
    max_body_bytes: int = MAX_BODY_BYTES
    max_streams: int = MAX_STREAMS


class Readiness(BaseModel):
    """Whether a service can work."""

    status: Literal["ready", "degraded"]
    troubles: list[Trouble]


def create_app(records: DatabaseRecords, settings: ServiceSettings | None = None) -> FastAPI:
    """Return the application for the results in these records; by default it answers to this machine alone."""
    settings = settings or ServiceSettings()
    records = DatabaseRecords(impatient(records.engine, settings.database_wait_s), records.blobs)
    reads = Reads(records)
    tokens, sessions, failures = Tokens(records.engine), Sessions(), failed_logins()
    streams = Streams(reads, tokens, max_streams=settings.max_streams)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(streams.run())
        yield
        streams.close()
        await task
        await asyncio.to_thread(app.state.stop_tracing)

    app = FastAPI(
        title="pytest-ssr",
        version=__version__,
        description="Self-play SWE-RL as a service: projects, jobs, bugs, attempts, leaderboards and exports.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.queries, app.state.streams = reads, streams
    app.state.metrics = Metrics(records.engine, records.blobs.root, lambda: streams.count)
    app.state.projects, app.state.queue = Projects(records.engine, settings.roots), JobQueue(records.engine)
    app.state.models, app.state.model_keys = RegisteredModels(records.engine), settings.model_keys
    app.add_middleware(EntityTagMiddleware)
    app.add_middleware(BodyLimitMiddleware, max_bytes=settings.max_body_bytes)
    app.add_middleware(AccessMiddleware, rules=settings.access, tokens=tokens, sessions=sessions, failures=failures)
    app.add_middleware(RequestLogMiddleware, metrics=app.state.metrics)
    app.add_middleware(ProblemPageMiddleware)
    add_problem_handlers(app)
    app.include_router(_api())
    app.include_router(_probes())
    app.include_router(events.for_pages)
    app.include_router(login_router(tokens, sessions, failures))
    pages = Pages(reads, has_login=not settings.access.is_loopback)
    app.include_router(dashboard_router(pages))
    app.include_router(work_router(pages, app.state.queue, app.state.projects, app.state.models, settings.model_keys))
    app.mount("/static", static_files())
    app.state.stop_tracing = start_tracing(app)
    return app


def _api() -> APIRouter:
    # The scheme is for the description; the middleware has checked the token.
    bearer = HTTPBearer(auto_error=False, description="from `ssr serve token create`")
    checks = [Depends(bearer), Depends(require(Scope.READ)), Depends(require_known_parameters)]
    api = APIRouter(dependencies=checks, responses=RESPONSES)
    for part in (work, results, summaries, events):
        api.include_router(part.router)
    return api


def _probes() -> APIRouter:
    router = APIRouter(tags=["probes"])

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Answer while the process works."""
        # In the loop: threads may all wait for the database.
        return {"status": "up"}

    @router.get("/ready", responses={503: {"model": Readiness}})
    def ready(request: Request, response: Response) -> Readiness:
        """Answer 200 while the database can be read and results can be stored; name what is wrong."""
        queries: Reads = request.app.state.queries
        queries.last_event()
        records = queries.records
        found = list(troubles(records.engine, records.blobs.root))
        if any(trouble.stops_writing for trouble in found):
            response.status_code = 503
        return Readiness(status="degraded" if found else "ready", troubles=found)

    @router.get("/metrics", response_class=PlainTextResponse)
    def metrics(request: Request) -> Response:
        """Return metrics in the format of Prometheus."""
        found: Metrics = request.app.state.metrics
        return Response(found.text(), media_type=found.content_type)

    return router
