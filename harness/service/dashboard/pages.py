"""Serve the pages of the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from harness.service.dashboard import details, gap_map, summaries
from harness.service.dashboard.api_page import api_page
from harness.service.dashboard.comparison import comparison_page
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import STATIC, render
from harness.service.dashboard.summaries import following, page_after
from harness.service.filters import EpisodeFilter
from harness.service.health import troubles
from harness.service.rows import Page

_MOST_FILTER = 200
"""Characters of a filter; a longer one cannot match."""
_NOT_FOUND = 404


class Pages:
    """Render the pages of a store."""

    def __init__(self, reads: Reads, *, has_login: bool) -> None:
        """has_login: whether browsers log in, so that pages have a button to log out."""
        self.reads, self.has_login = reads, has_login

    def show(self, request: Request, name: str, page: object | None, *, status: int = 200) -> Response:
        """Return a page. name: of its template; page: what it shows, None if it does not exist."""
        if page is None:
            status, name = _NOT_FOUND, "problem"
            page = Problem("Not found", "The store has nothing with this id; it may have been removed.")
        # Read before the page is made, so that nothing happens between them unnoticed.
        events = f"/events?{urlencode({'after': self.reads.last_event()})}"
        html = render(
            f"{name}.html",
            page=page,
            page_name=_SECTIONS.get(name, name),
            here=_address(request),
            events=events,
            has_login=self.has_login,
            notices=troubles(self.reads.records.engine, self.reads.records.blobs.root),
            refreshes=False,
        )
        return HTMLResponse(html, status, headers={"Cache-Control": "no-store"})


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a page cannot show."""

    title: str
    detail: str
    request_id: str = ""


_SECTIONS = {
    "comparison": "runs",
    "job": "jobs",
    "run": "runs",
    "episode": "episodes",
    "artifact": "artifacts",
    "attempt": "attempts",
}


def static_files() -> StaticFiles:
    """Return the styles and scripts, to be mounted at /static."""
    return StaticFiles(directory=STATIC)


def dashboard_router(pages: Pages) -> APIRouter:
    """Return the routes of the pages, none of which changes anything."""
    reads, router = pages.reads, APIRouter(include_in_schema=False)

    @router.get("/")
    def overview(request: Request) -> Response:
        return pages.show(request, "overview", reads.sums.get("overview", lambda: summaries.overview(reads)))

    @router.get("/runs")
    def runs(request: Request, after: str = "") -> Response:
        return pages.show(request, "runs", summaries.runs_page(reads, after, "/runs?"))

    @router.get("/runs/{run}")
    def run(request: Request, run: str, after: str = "") -> Response:
        return pages.show(request, "run", summaries.run_page(reads, run, after, "?"))

    @router.get("/episodes")
    def episodes(request: Request, after: str = "") -> Response:
        return pages.show(request, "episodes", _episodes(reads, request.query_params, after))

    @router.get("/episodes/{number}")
    def episode(request: Request, number: str) -> Response:
        return pages.show(request, "episode", details.episode_page(reads, number))

    @router.get("/artifacts")
    def artifacts(request: Request, after: str = "") -> Response:
        return pages.show(request, "artifacts", _listed(page_after(reads.artifacts, after)))

    @router.get("/artifacts/{artifact_id}")
    def artifact(request: Request, artifact_id: str) -> Response:
        return pages.show(request, "artifact", details.artifact_page(reads, artifact_id))

    @router.get("/attempts")
    def attempts(request: Request, after: str = "") -> Response:
        return pages.show(request, "attempts", _listed(page_after(reads.attempts, after)))

    @router.get("/attempts/{attempt_id}")
    def attempt(request: Request, attempt_id: str) -> Response:
        return pages.show(request, "attempt", details.attempt_page(reads, attempt_id))

    _add_more(router, pages)
    return router


def _add_more(router: APIRouter, pages: Pages) -> None:
    reads = pages.reads

    @router.get("/gaps")
    def gaps(request: Request, campaign: str = "") -> Response:
        chosen = campaign[:_MOST_FILTER]
        return pages.show(request, "gaps", reads.sums.get(f"gaps {chosen}", lambda: gap_map.gaps_page(reads, chosen)))

    @router.get("/comparison")
    def comparison(request: Request, left: str = "", right: str = "") -> Response:
        return pages.show(request, "comparison", comparison_page(reads, left[:_MOST_FILTER], right[:_MOST_FILTER]))

    @router.get("/docs")
    def docs(request: Request) -> Response:
        address = str(request.base_url).rstrip("/")
        return pages.show(request, "docs", api_page(request.app.openapi(), address, has_tokens=pages.has_login))


def _listed(page: Page[Any]) -> summaries.ListPage:
    return summaries.ListPage(page.items, following(page, "?"))


def _episodes(reads: Reads, query: Mapping[str, Any], after: str) -> summaries.EpisodesPage:
    names = ("project", "strategy", "valid", "check")
    shown = {name: str(query.get(name, ""))[:_MOST_FILTER].strip() for name in names}
    valid = {"true": True, "false": False}.get(shown["valid"])
    wanted = EpisodeFilter(
        project=shown["project"] or None, strategy=shown["strategy"] or None, check=shown["check"] or None, valid=valid
    )
    found = page_after(partial(reads.episodes, filters=wanted), after)
    kept = urlencode({name: value for name, value in shown.items() if value})
    return summaries.EpisodesPage(found.items, shown, following(found, f"?{kept}&" if kept else "?"))


def _address(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path
