"""Serve models, workers, sums over episodes, leaderboards and exports."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from harness.service.api import PREFIX
from harness.service.api.parts import FileName, Name, Reads, Text, stored_file
from harness.service.problems import not_found
from harness.service.rows import (
    CheckCount,
    DifficultyBucket,
    FunctionGap,
    ModelRow,
    RoundRow,
    StoredFile,
    WorkerRow,
)

router = APIRouter(prefix=PREFIX)


@router.get("/models", tags=["models"])
def list_models(queries: Reads) -> list[ModelRow]:
    """List what each solver achieved, and what it cost."""
    return list(queries.sums.get("models by the API", queries.models))


@router.get("/workers", tags=["workers"])
def list_workers(queries: Reads) -> list[WorkerRow]:
    """List the workers that were seen last."""
    return list(queries.workers())


@router.get("/statistics/validity", tags=["statistics"])
def get_validity(queries: Reads) -> list[CheckCount]:
    """Return how many of the bugs that reached a check each of them rejected; the valid ones have an empty check."""
    return list(queries.sums.get("validity", queries.validity))


@router.get("/statistics/rounds", tags=["statistics"])
def get_rounds(queries: Reads) -> list[RoundRow]:
    """Return the last 2,000 rounds of all runs, in the order of time."""
    return list(queries.rounds())


@router.get("/statistics/difficulty", tags=["statistics"])
def get_difficulty(queries: Reads) -> list[DifficultyBucket]:
    """Return how many graded bugs have which solve rate."""
    return list(queries.sums.get("difficulty", queries.difficulty))


@router.get("/statistics/gaps", tags=["statistics"])
def get_gaps(queries: Reads, campaign: Text | None = None) -> list[FunctionGap]:
    """Return functions by the number of changes that no test noticed."""
    return list(queries.sums.get(f"functions {campaign}", lambda: queries.functions(campaign)))


@router.get("/leaderboards", tags=["leaderboards"])
def list_leaderboards(queries: Reads) -> list[StoredFile]:
    """List the stored leaderboards."""
    return list(queries.files("boards"))


@router.get("/leaderboards/{name}", tags=["leaderboards"], response_class=Response)
def get_leaderboard(request: Request, queries: Reads, name: Name) -> Response:
    """Return a leaderboard, as `ssr leaderboard --json` prints it."""
    return stored_file(request, queries, f"boards/{name.removesuffix('.json')}.json", "application/json")


@router.get("/exports", tags=["exports"])
def list_exports(queries: Reads) -> list[StoredFile]:
    """List the files of all exports; the first part of a name is the export."""
    return list(queries.files("exports"))


@router.get("/exports/{name}", tags=["exports"])
def list_export_files(queries: Reads, name: Name) -> list[StoredFile]:
    """List the files of an export, which has the id of its job."""
    found = queries.files(f"exports/{name}")
    if not found:
        raise not_found("export", name)
    return list(found)


@router.get("/exports/{name}/{file:path}", tags=["exports"], response_class=Response)
def get_export_file(request: Request, queries: Reads, name: Name, file: FileName) -> Response:
    """Return a file of an export."""
    return stored_file(request, queries, f"exports/{name}/{file}", "application/octet-stream")
