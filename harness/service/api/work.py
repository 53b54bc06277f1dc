"""Serve projects and the jobs that work on them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from harness.models.registry import Entry
from harness.service.access import Principal
from harness.service.api import PREFIX
from harness.service.api.parts import Administrator, After, Limit, Listing, Name, Reads, Runner, Text, listing
from harness.service.filters import EpisodeFilter, JobFilter
from harness.service.job import Job, JobKind, JobLine, JobStatus
from harness.service.jobs import NEED_PROJECT, schema_of, validated
from harness.service.model_test import ModelTest, tried
from harness.service.problems import not_found
from harness.service.projects import Project, Projects
from harness.service.queries import DEFAULT_LIMIT, MAX_LIMIT, Queries
from harness.service.queue import JobQueue
from harness.service.registered_models import RegisteredModels, models_in
from harness.service.rows import EpisodeRow
from harness.service.tokens import Scope
from pytest_ssr.errors import SettingsError

router = APIRouter(prefix=PREFIX)
_MAX_CHARS = 4_000
_ONE_EPISODE = {"count": 1, "rounds": 1, "higher_order": 0}
LineNumber = Annotated[int, Query(ge=0, le=2**53, description="the number of the last line that is known")]
Key = Annotated[str | None, Header(pattern=r"^[!-~]{1,100}$", description="a second request with it makes no job")]


class NewProject(BaseModel):
    """A project to add."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=64)
    source: str = Field(max_length=_MAX_CHARS, description="an https address of a git repository, or a folder")
    commit: str = Field("", max_length=64, description="the full hash of a commit; by default the main branch")
    image: str = Field("", max_length=255, description="the container image in which its tests run")
    python: str = Field("", max_length=20, description="such as python3.12; by default the project's own")


def _add_settings(schema: dict[str, Any]) -> None:
    """Describe the settings of each kind of job."""
    schemas = {str(kind): schema_of(kind) for kind in JobKind}
    schema["oneOf"] = [
        {
            "title": kind,
            "properties": {"kind": {"const": kind}, "settings": settings},
            "required": ["settings"] if settings["required"] else [],
        }
        for kind, settings in schemas.items()
    ]


class NewJob(BaseModel):
    """A job to run."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_add_settings)

    kind: JobKind
    project_id: str | None = Field(
        None, max_length=32, pattern=r"^[A-Za-z0-9]*$", description="required, except for exports and leaderboards"
    )
    settings: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="options of the command of `ssr` that has the name of the kind"
    )


class RegisteredModel(BaseModel):
    """A model that jobs can use."""

    name: str
    model: str = Field("", description="what it stands for; only administrators see this and the next two")
    url: str = ""
    key: str = Field("", description="the variable of the workers that holds its key")
    context: int = Field(0, description="tokens of a prompt and its reply; 0 for the server's value")
    input: float | None = Field(None, description="USD per million tokens of prompts")
    output: float | None = Field(None, description="USD per million tokens of replies")
    cached: float | None = Field(None, description="USD per million cached tokens of prompts")


class NewModel(BaseModel):
    """A model to register."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(max_length=500, description="PROVIDER/MODEL, or vllm:URL for a server of the OpenAI protocol")
    url: str = Field("", max_length=500, description="the server of a model PROVIDER/MODEL; its provider's by default")
    key: str = Field("", max_length=100, description="the variable of the workers that holds its key")
    context: int = Field(0, ge=0, le=2**31, description="tokens of a prompt and its reply; 0 for the server's value")
    input: float | None = Field(None, ge=0, le=1e9, description="USD per million tokens of prompts")
    output: float | None = Field(None, ge=0, le=1e9, description="USD per million tokens of replies")
    cached: float | None = Field(None, ge=0, le=1e9, description="USD per million cached tokens of prompts")


class NewEpisode(BaseModel):
    """An episode to play: one bug, and attempts at it."""

    model_config = ConfigDict(extra="forbid")

    project_id: str = Field(max_length=32, pattern=r"^[A-Za-z0-9]+$")
    injector: str | None = Field(
        None,
        max_length=200,
        description="mutation, removal, combination, or model:NAME, a registered model; several with commas",
        examples=["mutation"],
    )
    solver: str | None = Field(
        None, max_length=200, description="search, or model:NAME, a registered model", examples=["search"]
    )
    attempts: int | None = Field(None, ge=1, le=64, description="attempts at the bug; 8 by default", examples=[4])
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="0 by default", examples=[0])


class EpisodeProgress(BaseModel):
    """How far an episode is."""

    id: str
    """The id of its job."""
    status: JobStatus
    stage: str
    """The stage that it is in, or ended in: fetch, measure, inject, solve; empty until it begins."""
    doing: str
    """What it does in this stage."""
    error: str
    run: str
    """The run that stores it; empty until it begins."""
    reward: float | None
    """Of the injector for the episode's bug; None until it is graded."""
    solved: int
    """Of the attempts at the episode's bug, like the next."""
    graded: int
    tokens: int
    """Of the episode and of the candidates that were rejected before its bug, like the next."""
    cost_usd: float
    """Of the calls whose price is known; the record of `GET /episodes/NUMBER` has the number of the others."""
    episodes: list[EpisodeRow]
    """The episode, and after it the candidates that were rejected before its bug; empty until the end."""


async def _projects(request: Request) -> Projects:
    projects: Projects = request.app.state.projects
    return projects


async def _queue(request: Request) -> JobQueue:
    queue: JobQueue = request.app.state.queue
    return queue


async def _models(request: Request) -> RegisteredModels:
    models: RegisteredModels = request.app.state.models
    return models


Models = Annotated[RegisteredModels, Depends(_models)]
AllProjects = Annotated[Projects, Depends(_projects)]
Queue = Annotated[JobQueue, Depends(_queue)]


@router.get("/projects", tags=["projects"])
def list_projects(projects: AllProjects) -> list[Project]:
    """List the projects, sorted by name."""
    return projects.list()


@router.post("/projects", tags=["projects"], status_code=201)
def add_project(projects: AllProjects, new: NewProject, _: Administrator) -> Project:
    """Add a project: a git repository, or a folder below one of those that `ssr serve --root` names."""
    return projects.add(new.name, new.source, commit=new.commit, image=new.image, python=new.python)


@router.get("/projects/{project_id}", tags=["projects"])
def get_project(projects: AllProjects, project_id: Name) -> Project:
    """Return a project."""
    found = projects.get(project_id)
    if found is None:
        raise not_found("project", project_id)
    return found


@router.delete("/projects/{project_id}", tags=["projects"], status_code=204)
def remove_project(projects: AllProjects, project_id: Name, _: Administrator) -> Response:
    """Remove a project; its results stay."""
    if not projects.remove(project_id):
        raise not_found("project", project_id)
    return Response(status_code=204)


@router.post("/episodes", tags=["episodes"], status_code=201)
def start_episode(
    queue: Queue,
    projects: AllProjects,
    models: Models,
    reads: Reads,
    new: NewEpisode,
    sender: Runner,
    idempotency_key: Key = None,
) -> EpisodeProgress:
    """Play one episode: inject a bug, run a solver on it several times, and reward both.

    Candidates that are rejected before one is valid are stored as episodes of the same run. Failed repairs do not
    become bugs.
    """
    given = {name: value for name, value in new.model_dump().items() if name != "project_id" and value is not None}
    job = _submit(
        queue,
        projects,
        models,
        NewJob(kind=JobKind.PLAY, project_id=new.project_id, settings={**given, **_ONE_EPISODE}),
        sender,
        idempotency_key,
    )
    return _progress(reads, job)


@router.get("/episodes/{episode_id}/progress", tags=["episodes"])
def get_progress(queue: Queue, reads: Reads, episode_id: Name) -> EpisodeProgress:
    """Return the stage, the reward and the cost of an episode that was started by its own request.

    Its reward and its attempts are those of its own bug; `GET /episodes/NUMBER` has more, once it is stored.
    """
    job = queue.get(episode_id)
    if job is None or job.kind is not JobKind.PLAY:
        raise not_found("episode", episode_id)
    return _progress(reads, job)


def _progress(reads: Queries, job: Job) -> EpisodeProgress:
    run = job.about.get("run", "")
    # A job with the same settings and more rounds goes on with the same run.
    stored = reads.episodes(filters=EpisodeFilter(run=run, round=1), limit=MAX_LIMIT).items if run else ()
    # Without a valid bug, the last candidate is the episode.
    episodes = sorted(stored, key=lambda episode: not episode.valid)
    own = episodes[0] if episodes else None
    return EpisodeProgress(
        id=job.id,
        status=job.status,
        stage=job.stages[-1][0] if job.stages else "",
        doing=job.stage,
        error=job.error,
        run=run,
        reward=own.reward if own is not None else None,
        solved=own.solved if own is not None else 0,
        graded=own.graded if own is not None else 0,
        tokens=sum(episode.tokens for episode in episodes),
        cost_usd=sum(episode.cost_usd for episode in episodes),
        episodes=episodes,
    )


@router.get("/registered-models", tags=["registered models"])
def list_registered_models(models: Models, caller: Runner) -> list[RegisteredModel]:
    """List the models that jobs can use, by name; their servers and keys are for administrators."""
    is_admin = caller.scope.includes(Scope.ADMIN)
    return [RegisteredModel(name=name, **_shown(entry, is_admin=is_admin)) for name, entry in models.all().items()]


@router.put("/registered-models/{name}", tags=["registered models"])
def register_model(models: Models, name: Name, new: NewModel, _: Administrator) -> RegisteredModel:
    """Register a model, in place of one of the same name: jobs name it `model:NAME`."""
    entry = Entry(**new.model_dump())
    models.put(name, entry)
    return RegisteredModel(name=name, **_shown(entry, is_admin=True))


@router.delete("/registered-models/{name}", tags=["registered models"], status_code=204)
def remove_model(models: Models, name: Name, _: Administrator) -> Response:
    """Remove a model; jobs that wait for it fail."""
    if not models.remove(name):
        raise not_found("registered model", name)
    return Response(status_code=204)


@router.post("/registered-models/{name}/test", tags=["registered models"])
def try_model(request: Request, models: Models, name: Name, _: Administrator) -> ModelTest:
    """Send one short request to a registered model, from the web process, and tell by a code what came of it.

    A key is used only if the web process has it; workers may have others, and another network.
    """
    entry = models.all().get(name)
    if entry is None:
        raise not_found("registered model", name)
    return tried(name, entry, request.app.state.model_keys)


def _shown(entry: Entry, *, is_admin: bool) -> dict[str, Any]:
    names = ("context", "input", "output", "cached", *(("model", "url", "key") if is_admin else ()))
    return {name: getattr(entry, name) for name in names}


async def _job_filter(
    status: JobStatus | None = None, kind: JobKind | None = None, project_id: Text | None = None
) -> JobFilter:
    return JobFilter(status, kind, project_id)


@router.get("/jobs", tags=["jobs"])
def list_jobs(
    queries: Reads, filters: Annotated[JobFilter, Depends(_job_filter)], after: After = "", limit: Limit = DEFAULT_LIMIT
) -> Listing[Job]:
    """List jobs, the last first."""
    return listing(queries.jobs(after, filters, limit=limit))


@router.post("/jobs", tags=["jobs"], status_code=201)
def create_job(
    queue: Queue, projects: AllProjects, models: Models, new: NewJob, sender: Runner, idempotency_key: Key = None
) -> Job:
    """Put a job into the queue.

    A request that is repeated with the same `Idempotency-Key` within a day returns the job of the first one.
    """
    return _submit(queue, projects, models, new, sender, idempotency_key)


def _submit(
    queue: JobQueue,
    projects: Projects,
    models: RegisteredModels,
    new: NewJob,
    sender: Principal,
    idempotency_key: str | None,
) -> Job:
    settings = validated(new.kind, new.settings, models.all())
    if (new.project_id is not None) != (new.kind in NEED_PROJECT):
        verb = "needs" if new.kind in NEED_PROJECT else "has no"
        raise SettingsError(f"a job of the kind {new.kind} {verb} project", option="project_id")
    if new.project_id is not None and projects.get(new.project_id) is None:
        raise SettingsError("there is no such project; GET /api/v1/projects lists them", option="project_id")
    # A key is its sender's: others learn nothing about the job.
    key = f"{sender.id}:{idempotency_key}" if idempotency_key is not None else None
    uses_models = bool(models_in(settings))
    return queue.submit(new.kind, settings, new.project_id, key, owner=sender.id, uses_models=uses_models)


@router.get("/jobs/{job_id}", tags=["jobs"])
def get_job(queue: Queue, job_id: Name) -> Job:
    """Return a job with its settings and, when it has ended, its result."""
    return _existing(queue.get(job_id), job_id)


@router.get("/jobs/{job_id}/log", tags=["jobs"])
def list_job_lines(queue: Queue, job_id: Name, _: Runner, after: LineNumber = 0) -> list[JobLine]:
    """Return the log of a job: at most 5,000 lines, those after the one of this number."""
    _existing(queue.get(job_id), job_id)
    return queue.log.lines(job_id, after)


@router.post("/jobs/{job_id}/cancel", tags=["jobs"])
def cancel_job(queue: Queue, job_id: Name, _: Runner) -> Job:
    """Cancel a job: at once if it waits, within seconds if it runs; one that has ended stays as it is."""
    return _existing(queue.cancel(job_id), job_id)


@router.post("/jobs/{job_id}/retry", tags=["jobs"])
def retry_job(queue: Queue, job_id: Name, _: Runner) -> Job:
    """Put a job that failed or was cancelled into the queue again."""
    return _existing(queue.retry(job_id), job_id)


def _existing(job: Job | None, job_id: str) -> Job:
    if job is None:
        raise not_found("job", job_id)
    return job
