"""Serve runs, episodes, artifacts, verdicts, rollouts and candidates."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from harness.service.api import PREFIX
from harness.service.api.parts import (
    After,
    FileName,
    Limit,
    Listing,
    Name,
    Number,
    Reads,
    Text,
    found_lines,
    listing,
    stored_file,
    stored_folder,
)
from harness.service.filters import ArtifactFilter, AttemptFilter, CandidateFilter, EpisodeFilter
from harness.service.problems import not_found
from harness.service.queries import DEFAULT_LIMIT
from harness.service.rows import (
    ArtifactRow,
    AttemptDetails,
    AttemptRow,
    CandidateRow,
    EpisodeDetails,
    EpisodeRow,
    RoundRow,
    RunRow,
    StoredFile,
)

router = APIRouter(prefix=PREFIX)
Search = Annotated[str, Query(max_length=200, description="a text in a value of a line, in upper or lower case")]


async def _episode_filter(
    run: Text | None = None,
    project: Text | None = None,
    strategy: Text | None = None,
    check: Text | None = None,
    artifact_id: Text | None = None,
    valid: bool | None = None,
) -> EpisodeFilter:
    return EpisodeFilter(run, project, strategy, check, artifact_id, valid)


async def _artifact_filter(
    kind: Text | None = None, repository: Text | None = None, strategy: Text | None = None
) -> ArtifactFilter:
    return ArtifactFilter(kind, repository, strategy)


async def _attempt_filter(
    artifact_id: Text | None = None,
    role: Text | None = None,
    player: Text | None = None,
    status: Text | None = None,
    resolved: bool | None = None,
) -> AttemptFilter:
    return AttemptFilter(artifact_id, role, player, status, resolved)


async def _candidate_filter(
    campaign: Text | None = None, status: Text | None = None, check: Text | None = None, file: Text | None = None
) -> CandidateFilter:
    return CandidateFilter(campaign, status, check, file)


@router.get("/runs", tags=["runs"])
def list_runs(queries: Reads, after: After = "", limit: Limit = DEFAULT_LIMIT) -> Listing[RunRow]:
    """List the runs of self-play, the last first."""
    return listing(queries.runs(after, limit=limit))


@router.get("/runs/{run}", tags=["runs"])
def get_run(queries: Reads, run: Name) -> RunRow:
    """Return a run: the sums over its rounds."""
    found = queries.run(run)
    if found is None:
        raise not_found("run", run)
    return found


@router.get("/runs/{run}/rounds", tags=["runs"])
def list_rounds(queries: Reads, run: Name) -> list[RoundRow]:
    """List the last 2,000 rounds of a run, in order."""
    found = queries.rounds(run)
    if not found:
        raise not_found("run", run)
    return list(found)


@router.get("/episodes", tags=["episodes"])
def list_episodes(
    queries: Reads,
    filters: Annotated[EpisodeFilter, Depends(_episode_filter)],
    after: After = "",
    limit: Limit = DEFAULT_LIMIT,
) -> Listing[EpisodeRow]:
    """List episodes, the last first."""
    return listing(queries.episodes(after, filters, limit=limit))


@router.get("/episodes/{number}", tags=["episodes"])
def get_episode(queries: Reads, number: Number) -> EpisodeDetails:
    """Return an episode with its record: why its bug was rejected, or the attempts at it."""
    found = queries.episode_details(number)
    if found is None:
        raise not_found("episode", number)
    return found


@router.get("/artifacts", tags=["artifacts"])
def list_artifacts(
    queries: Reads,
    filters: Annotated[ArtifactFilter, Depends(_artifact_filter)],
    after: After = "",
    limit: Limit = DEFAULT_LIMIT,
) -> Listing[ArtifactRow]:
    """List artifacts, the last first."""
    return listing(queries.artifacts(after, filters, limit=limit))


@router.get("/artifacts/{artifact_id}", tags=["artifacts"])
def get_artifact(queries: Reads, artifact_id: Name) -> ArtifactRow:
    """Return an artifact."""
    return _artifact(queries, artifact_id)


@router.get("/artifacts/{artifact_id}/files", tags=["artifacts"])
def list_artifact_files(queries: Reads, artifact_id: Name) -> list[StoredFile]:
    """List the files of an artifact."""
    found = _artifact(queries, artifact_id)
    return list(queries.files(f"{found.kind}/{found.id}"))


@router.get("/artifacts/{artifact_id}/files.tar", tags=["artifacts"], response_class=Response)
def get_artifact_archive(queries: Reads, artifact_id: Name) -> Response:
    """Return all files of an artifact as a tar archive, in a folder with its id."""
    found = _artifact(queries, artifact_id)
    return stored_folder(queries, f"{found.kind}/{found.id}")


@router.get("/artifacts/{artifact_id}/files/{name}", tags=["artifacts"], response_class=Response)
def get_artifact_file(request: Request, queries: Reads, artifact_id: Name, name: Name) -> Response:
    """Return a file of an artifact."""
    found = _artifact(queries, artifact_id)
    return stored_file(request, queries, f"{found.kind}/{found.id}/{name}", "application/octet-stream")


@router.get("/artifacts/{artifact_id}/verdict", tags=["verdicts"], response_class=Response)
def get_verdict(request: Request, queries: Reads, artifact_id: Name) -> Response:
    """Return the last verdict on an artifact: all checks, each with its runs."""
    path = queries.verdict_path(artifact_id)
    if path is None:
        raise not_found("verdict on the artifact", artifact_id)
    return stored_file(request, queries, path, "application/json")


@router.get("/attempts", tags=["attempts"])
def list_attempts(
    queries: Reads,
    filters: Annotated[AttemptFilter, Depends(_attempt_filter)],
    after: After = "",
    limit: Limit = DEFAULT_LIMIT,
) -> Listing[AttemptRow]:
    """List the attempts of solvers and injectors, the last first."""
    return listing(queries.attempts(after, filters, limit=limit))


@router.get("/attempts/{attempt_id}", tags=["attempts"])
def get_attempt(queries: Reads, attempt_id: Name) -> AttemptDetails:
    """Return an attempt with its grade and its record."""
    found = queries.attempt_details(attempt_id)
    if found is None:
        raise not_found("attempt", attempt_id)
    return found


@router.get("/attempts/{attempt_id}/files", tags=["attempts"])
def list_attempt_files(queries: Reads, attempt_id: Name) -> list[StoredFile]:
    """List the files of an attempt: its trajectory, its patch, its record."""
    return list(queries.files(f"rollouts/{_attempt(queries, attempt_id).id}"))


@router.get("/attempts/{attempt_id}/files/{name:path}", tags=["attempts"], response_class=Response)
def get_attempt_file(request: Request, queries: Reads, attempt_id: Name, name: FileName) -> Response:
    """Return a file of an attempt."""
    path = f"rollouts/{_attempt(queries, attempt_id).id}/{name}"
    return stored_file(request, queries, path, "application/octet-stream")


@router.get("/attempts/{attempt_id}/trajectory", tags=["attempts"], response_class=Response)
def get_trajectory(request: Request, queries: Reads, attempt_id: Name, search: Search = "") -> Response:
    """Return the trajectory of an attempt in JSON Lines; with `search`, only the lines that contain it.

    A found line has its number in the file, from 1, as `line`.
    """
    path = f"rollouts/{_attempt(queries, attempt_id).id}/trajectory.jsonl"
    if search:
        return found_lines(queries, path, search, "application/jsonl")
    return stored_file(request, queries, path, "application/jsonl")


@router.get("/candidates", tags=["candidates"])
def list_candidates(
    queries: Reads,
    filters: Annotated[CandidateFilter, Depends(_candidate_filter)],
    after: After = "",
    limit: Limit = DEFAULT_LIMIT,
) -> Listing[CandidateRow]:
    """List the changes that were tried, the last first."""
    return listing(queries.candidates(after, filters, limit=limit))


def _artifact(queries: Reads, artifact_id: str) -> ArtifactRow:
    found = queries.artifact(artifact_id)
    if found is None:
        raise not_found("artifact", artifact_id)
    return found


def _attempt(queries: Reads, attempt_id: str) -> AttemptRow:
    found = queries.attempt(attempt_id)
    if found is None:
        raise not_found("attempt", attempt_id)
    return found
