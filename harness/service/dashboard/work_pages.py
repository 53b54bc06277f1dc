"""Serve the pages that start and cancel jobs; each form needs the scope that the API needs for the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from harness.models.registry import read_entry
from harness.service.access import principal_of
from harness.service.api.parts import Administrator, Name, Runner
from harness.service.dashboard import summaries, work
from harness.service.dashboard.job_page import job_page
from harness.service.dashboard.pages import Pages
from harness.service.dashboard.rendering import link
from harness.service.model_test import ModelTest, tried
from harness.service.problems import not_found
from harness.service.projects import ProjectRefusedError, Projects
from harness.service.queue import JobQueue, QueueError
from harness.service.registered_models import RegisteredModels, models_in
from harness.service.tokens import Scope
from pytest_ssr.errors import SettingsError

_SEE_OTHER, _INVALID = 303, 422
_MOST_FIELDS = 50
_MODEL_NUMBERS = ("context", "input", "output", "cached")
_MODEL_FIELDS = ("name", "model", "url", "key", *_MODEL_NUMBERS)
_PROJECT_FIELDS = ("name", "source", "commit", "image", "python")


async def _sent(request: Request) -> Mapping[str, str]:
    """Return the fields of a form that were filled in, without NUL, which PostgreSQL does not take."""
    body = (await request.body()).decode(errors="replace")
    try:
        return {name: value.replace("\0", "") for name, value in parse_qsl(body, max_num_fields=_MOST_FIELDS)}
    except ValueError:
        return {}


Sent = Annotated[Mapping[str, str], Depends(_sent)]


def work_router(
    pages: Pages, queue: JobQueue, projects: Projects, models: RegisteredModels, model_keys: Sequence[str]
) -> APIRouter:
    """Return the routes of jobs, projects and models. model_keys: as in `ServiceSettings`."""
    router = APIRouter(include_in_schema=False)
    _add_jobs(router, pages, queue, projects, models)
    _add_projects(router, pages, projects)
    _add_models(router, pages, models, model_keys)
    return router


def _add_jobs(router: APIRouter, pages: Pages, queue: JobQueue, projects: Projects, models: RegisteredModels) -> None:
    def show(request: Request, form: work.JobForm, status: str = "", after: str = "", code: int = 200) -> Response:
        scope = principal_of(request).scope
        page = work.jobs_page(pages.reads, projects, scope, form, status=status, after=after)
        return pages.show(request, "jobs", page, status=code)

    @router.get("/jobs")
    def jobs(request: Request, kind: str = "", status: str = "", after: str = "", episode: bool = False) -> Response:
        return show(request, work.job_form(kind, models.all(), of_episode=episode), status, after)

    @router.post("/jobs")
    def start(request: Request, sent: Sent, sender: Runner) -> Response:
        known = models.all()
        try:
            kind, settings, project, key = work.read_job_form(sent, known)
            if project is not None and projects.get(project) is None:
                raise SettingsError("the project was removed; choose another")
        except SettingsError as error:
            return show(request, work.job_form(sent.get("kind", ""), known, sent, str(error)), code=_INVALID)
        try:
            uses_models = bool(models_in(settings))
            sent_by = f"{sender.id}:{key}"
            job = queue.submit(kind, settings, project, sent_by, owner=sender.id, uses_models=uses_models)
        except QueueError as error:
            return show(request, work.job_form(kind, known, sent, str(error)), code=_INVALID)
        return RedirectResponse(link("job", job.id), _SEE_OTHER)

    @router.get("/jobs/{job_id}")
    def job(request: Request, job_id: str) -> Response:
        found = queue.get(job_id) if job_id.isalnum() else None
        return pages.show(request, "job", job_page(pages.reads, queue, found, projects, principal_of(request).scope))

    @router.post("/jobs/{job_id}/cancel")
    def cancel(job_id: Name, _: Runner) -> Response:
        if queue.cancel(job_id) is None:
            raise not_found("job", job_id)
        return RedirectResponse(link("job", job_id), _SEE_OTHER)

    @router.post("/jobs/{job_id}/retry")
    def retry(job_id: Name, _: Runner) -> Response:
        if queue.retry(job_id) is None:
            raise not_found("job", job_id)
        return RedirectResponse(link("job", job_id), _SEE_OTHER)


def _add_models(router: APIRouter, pages: Pages, models: RegisteredModels, model_keys: Sequence[str]) -> None:
    def show(
        request: Request, entered: Mapping[str, str], error: str = "", tested: ModelTest | None = None
    ) -> Response:
        is_admin = principal_of(request).scope.includes(Scope.ADMIN)
        shown = {name: entered.get(name, "") for name in _MODEL_FIELDS}
        page = pages.reads.sums.get("models", lambda: summaries.models_page(pages.reads))
        page = replace(page, registered=models.all(), can_change=is_admin, entered=shown, error=error, tested=tested)
        return pages.show(request, "models", page, status=_INVALID if error else 200)

    @router.get("/models")
    def listed(request: Request) -> Response:
        return show(request, {})

    @router.post("/models")
    def add(request: Request, sent: Sent, _: Administrator) -> Response:
        values = {name: sent.get(name, "").strip() for name in _MODEL_FIELDS}
        numbers = {name: values[name] for name in _MODEL_NUMBERS if values[name]}
        try:
            texts = {name: values[name] for name in ("model", "url", "key")}
            models.put(values["name"], read_entry({**texts, **_numbers(numbers)}, values["name"]))
        except SettingsError as error:
            return show(request, values, str(error))
        return RedirectResponse(link("models"), _SEE_OTHER)

    @router.post("/models/{name}/test")
    def test(request: Request, name: Name, _: Administrator) -> Response:
        entry = models.all().get(name)
        if entry is None:
            raise not_found("registered model", name)
        return show(request, {}, tested=tried(name, entry, model_keys))

    @router.post("/models/{name}/remove")
    def remove(name: Name, _: Administrator) -> Response:
        if not models.remove(name):
            raise not_found("registered model", name)
        return RedirectResponse(link("models"), _SEE_OTHER)


def _numbers(texts: Mapping[str, str]) -> dict[str, float]:
    """Return numbers from a form; raises SettingsError for any other text."""
    try:
        return {name: int(text) if name == "context" else float(text) for name, text in texts.items()}
    except ValueError:
        raise SettingsError("context and prices are numbers", option="context") from None


def _add_projects(router: APIRouter, pages: Pages, projects: Projects) -> None:
    def show(request: Request, entered: Mapping[str, str], error: str = "") -> Response:
        can_change = principal_of(request).scope.includes(Scope.ADMIN)
        shown = {name: entered.get(name, "") for name in _PROJECT_FIELDS}
        page = work.ProjectsPage(projects.list(), can_change, shown, error)
        return pages.show(request, "projects", page, status=_INVALID if error else 200)

    @router.get("/projects")
    def listed(request: Request) -> Response:
        return show(request, {})

    @router.post("/projects")
    def add(request: Request, sent: Sent, _: Administrator) -> Response:
        values = {name: sent.get(name, "").strip() for name in _PROJECT_FIELDS}
        try:
            projects.add(
                values["name"],
                values["source"],
                commit=values["commit"],
                image=values["image"],
                python=values["python"],
            )
        except ProjectRefusedError as error:
            return show(request, values, str(error))
        return RedirectResponse(link("projects"), _SEE_OTHER)

    @router.post("/projects/{project_id}/remove")
    def remove(project_id: Name, _: Administrator) -> Response:
        if not projects.remove(project_id):
            raise not_found("project", project_id)
        return RedirectResponse(link("projects"), _SEE_OTHER)
