"""What the routes of the API have in common: parameters, pages and scopes.

Dependencies are coroutines although they wait for nothing: FastAPI runs each other function in a thread.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Awaitable, Callable
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, StringConstraints

from harness.records.trajectory import texts_of
from harness.service.access import Principal, principal_of
from harness.service.limits import is_known
from harness.service.problems import ProblemCode, ProblemError, not_found
from harness.service.queries import MAX_LIMIT, Queries
from harness.service.rows import Page
from harness.service.tokens import Scope
from pytest_ssr.records.decoding import json_object

T = TypeVar("T")
_MAX_NUMBER = 2**63 - 1
_MAX_DOWNLOAD_BYTES = 64 << 20
_NOT_MODIFIED = 304
_MOST_NAMED, _MOST_NAME = 5, 40
UNKNOWN_PARAMETER = "unknown-parameter"
"""The code of a query parameter that an operation does not have."""


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL is not allowed")
    return text


Text = Annotated[str, StringConstraints(max_length=500), AfterValidator(_without_nul)]
"""A value that a column may be compared with; PostgreSQL takes no NUL."""
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$", description="an id")]
FileName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}(/[A-Za-z0-9._-]{1,128}){0,7}$")]
Number = Annotated[int, Path(ge=1, le=_MAX_NUMBER)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="the number of items")]
After = Annotated[str, Query(max_length=1_024, description="`next` of the previous page")]


class Listing(BaseModel, Generic[T]):
    """Some items of a list."""

    items: list[T]
    next: str
    """Pass it as `after` to get the following items; empty if there are no more."""


def listing(page: Page[T]) -> Listing[T]:
    """Return a page as it is sent."""
    return Listing(items=list(page.items), next=page.next)


async def queries_of(request: Request) -> Queries:
    """Return the queries of the service."""
    queries: Queries = request.app.state.queries
    return queries


Reads = Annotated[Queries, Depends(queries_of)]


def require(scope: Scope) -> Callable[[Request], Awaitable[Principal]]:
    """Return a dependency that refuses requests without a scope, and yields who has sent them."""

    async def check(request: Request) -> Principal:
        principal = principal_of(request)
        if not principal.scope.includes(scope):
            detail = f"the token has the scope {principal.scope}; this needs {scope}"
            raise ProblemError(ProblemCode.SCOPE_MISSING, detail)
        return principal

    return check


async def require_known_parameters(request: Request) -> None:
    """Refuse a query with a parameter that the operation does not have, which would be ignored."""
    if not request.query_params:
        return
    described = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = [part["name"] for part in described.get("parameters", ()) if part["in"] == "query"]
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        accepted = f"choose from {', '.join(known)}" if known else "this operation has none"
        names = ", ".join(repr(name[:_MOST_NAME]) for name in unknown[:_MOST_NAMED])
        errors = [{"location": ["query", name[:_MOST_NAME]], "code": UNKNOWN_PARAMETER} for name in unknown]
        detail = f"not a parameter of this operation: {names}; {accepted}"
        raise ProblemError(ProblemCode.INVALID_REQUEST, detail, errors=errors[:_MOST_NAMED])


Runner = Annotated[Principal, Depends(require(Scope.RUN))]
Administrator = Annotated[Principal, Depends(require(Scope.ADMIN))]


def stored_file(request: Request, queries: Queries, path: str, media_type: str) -> Response:
    """Return a file of the store, which never changes under its ETag; raises ProblemError if it does not exist."""
    found = queries.file(path)
    if found is None:
        raise not_found("file", path.rpartition("/")[2])
    headers = {"ETag": f'"{found.digest}"', "Cache-Control": "private, no-cache"}
    if is_known(headers["ETag"], request.headers.get("if-none-match", "")):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    if found.size > _MAX_DOWNLOAD_BYTES:
        raise ProblemError(ProblemCode.TOO_LARGE, f"the file has {found.size} bytes; read it from the store")
    data = queries.records.get(path)
    if data is None:
        raise not_found("file", path.rpartition("/")[2])
    # A browser must not show what someone else has written as a page of this service.
    headers["Content-Disposition"] = "attachment"
    return Response(data, media_type=media_type, headers=headers)


def found_lines(queries: Queries, path: str, search: str, media_type: str) -> Response:
    """Return the lines of a file in JSON Lines with a text in one of their values; raises ProblemError."""
    found = queries.file(path)
    data = queries.records.get(path) if found is not None and found.size <= _MAX_DOWNLOAD_BYTES else None
    if found is None or (data is None and found.size <= _MAX_DOWNLOAD_BYTES):
        raise not_found("file", path.rpartition("/")[2])
    if data is None:
        raise ProblemError(ProblemCode.TOO_LARGE, f"the file has {found.size} bytes; read it from the store")
    text, lines = search.lower(), []
    for number, line in enumerate(data.splitlines(), 1):
        # A line that is being written cannot be read.
        values = json_object(line)
        if values is not None and any(text in each.lower() for each in texts_of(values)):
            lines.append(json.dumps({"line": number, **values}) + "\n")
    return Response("".join(lines), media_type=media_type, headers={"Content-Disposition": "attachment"})


def stored_folder(queries: Queries, folder: str) -> Response:
    """Return the files of a folder of the store as a tar archive, the same bytes each time; raises ProblemError."""
    name, files = folder.rpartition("/")[2], queries.files(folder)
    if sum(file.size for file in files) > _MAX_DOWNLOAD_BYTES:
        raise ProblemError(ProblemCode.TOO_LARGE, f"the files have more than {_MAX_DOWNLOAD_BYTES} bytes")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for file in files:
            data = queries.records.get(f"{folder}/{file.name}")
            if data is None:
                raise not_found("file", file.name)
            member = tarfile.TarInfo(f"{name}/{file.name}")
            member.size, member.mtime = len(data), int(file.stored_at)
            archive.addfile(member, io.BytesIO(data))
    headers = {"Content-Disposition": f'attachment; filename="{name}.tar"', "Cache-Control": "private, no-cache"}
    return Response(content.getvalue(), media_type="application/x-tar", headers=headers)
