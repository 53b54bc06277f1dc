"""Answer requests that fail with problem details (RFC 9457): a code for programs, and a sentence for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from harness.other_systems import route_here
from harness.service.job import QueueError, QueueErrorCode
from harness.service.logs import logger
from harness.service.projects import ProjectErrorCode, ProjectRefusedError
from pytest_ssr.errors import SettingsError, SsrError, StoreError

MEDIA_TYPE = "application/problem+json"
_RETRY_S = 5
"""When to try again after a failure of the database or of the blobs."""


class ProblemCode(StrEnum):
    """Why a request failed."""

    INVALID_REQUEST = "invalid-request"
    UNAUTHORIZED = "unauthorized"
    SCOPE_MISSING = "scope-missing"
    FOREIGN_HOST = "foreign-host"
    FOREIGN_ORIGIN = "foreign-origin"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    CONFLICT = "conflict"
    TOO_LARGE = "too-large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    RATE_LIMITED = "rate-limited"
    TOO_MANY_STREAMS = "too-many-streams"
    QUOTA_SPENT = "quota-spent"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


_STATUSES = {
    ProblemCode.INVALID_REQUEST: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
    ProblemCode.SCOPE_MISSING: HTTPStatus.FORBIDDEN,
    ProblemCode.FOREIGN_HOST: HTTPStatus.BAD_REQUEST,
    ProblemCode.FOREIGN_ORIGIN: HTTPStatus.FORBIDDEN,
    ProblemCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ProblemCode.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    ProblemCode.CONFLICT: HTTPStatus.CONFLICT,
    ProblemCode.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ProblemCode.UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ProblemCode.RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    ProblemCode.QUOTA_SPENT: HTTPStatus.TOO_MANY_REQUESTS,
    ProblemCode.TOO_MANY_STREAMS: HTTPStatus.SERVICE_UNAVAILABLE,
    ProblemCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ProblemCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class InvalidPart(BaseModel):
    """A part of a request that is not valid."""

    location: list[str | int]
    code: str


class ProblemDetails(BaseModel):
    """Why a request failed."""

    type: str
    title: str
    status: int
    detail: str
    code: ProblemCode
    request_id: str
    errors: list[InvalidPart] = []
    instead: str = Field("", description="for an address of another system: the one that does the same here")


class ProblemError(SsrError):
    """A request is answered with an error."""

    def __init__(
        self,
        code: ProblemCode,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """detail: what happened, to which value, and what to do. errors: the parts of the request that are not valid,
        as in InvalidPart.
        """
        super().__init__(detail)
        self.code, self.headers, self.errors = code, dict(headers or {}), errors


def not_found(kind: str, name: object) -> ProblemError:
    """Return the error for a thing that does not exist. kind: such as `artifact`."""
    return ProblemError(ProblemCode.NOT_FOUND, f"there is no {kind} {name}")


def problem_response(
    code: ProblemCode,
    detail: str,
    request_id: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, Any]] = (),
    instead: str = "",
) -> Response:
    """Return the answer to a request that failed."""
    status = _STATUSES[code]
    content: dict[str, Any] = {
        "type": f"urn:pytest-ssr:problem:{code}",
        "title": code.replace("-", " "),
        "status": int(status),
        "detail": detail,
        "code": str(code),
        "request_id": request_id,
    }
    if errors:
        content["errors"] = list(errors)
    if instead:
        content["instead"] = instead
    body = json.dumps(content).encode()
    return Response(body, int(status), headers=dict(headers or {}), media_type=MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer the exceptions of handlers with problem details."""

    @app.exception_handler(ProblemError)
    def problem(request: Request, error: ProblemError) -> Response:
        return problem_response(error.code, str(error), _id(request), headers=error.headers, errors=error.errors)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        # The values are not repeated: one of them may be a secret in the wrong field.
        parts = [{"location": list(item["loc"]), "code": item["type"]} for item in error.errors()]
        places = ", ".join(".".join(map(str, part["location"])) for part in parts[:5])
        detail = f"the request is not valid: {places}; /openapi.json describes it"
        return problem_response(ProblemCode.INVALID_REQUEST, detail, _id(request), errors=parts)

    @app.exception_handler(SettingsError)
    def setting(request: Request, error: SettingsError) -> Response:
        parts = [{"location": [error.option], "code": "value"}] if error.option else []
        return problem_response(ProblemCode.INVALID_REQUEST, str(error), _id(request), errors=parts)

    @app.exception_handler(ProjectRefusedError)
    def project(request: Request, error: ProjectRefusedError) -> Response:
        is_taken = error.code is ProjectErrorCode.NAME_TAKEN
        code = ProblemCode.CONFLICT if is_taken else ProblemCode.INVALID_REQUEST
        location = "name" if is_taken else str(error.code)
        parts = [{"location": ["body", location], "code": str(error.code)}]
        return problem_response(code, str(error), _id(request), errors=parts)

    @app.exception_handler(QueueError)
    def queue(request: Request, error: QueueError) -> Response:
        parts = [{"location": [], "code": str(error.code)}]
        code = _OF_QUEUE.get(error.code, ProblemCode.CONFLICT)
        return problem_response(code, str(error), _id(request), errors=parts)

    @app.exception_handler(StoreError)
    def store(request: Request, error: StoreError) -> Response:
        # The message names servers and folders, which are for the log.
        logger().error("store-failed", error=str(error), path=request.url.path)
        detail = "the database or the files of the store cannot be used now; nothing that was acknowledged is lost"
        headers = {"Retry-After": str(_RETRY_S)}
        return problem_response(ProblemCode.UNAVAILABLE, detail, _id(request), headers=headers)

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        code, detail = _OF_STATUS.get(error.status_code, (ProblemCode.INVALID_REQUEST, "the request is not valid"))
        instead = route_here(request.url.path) if code is ProblemCode.NOT_FOUND else ""
        detail += f"; {instead} does the same here" if instead else ""
        return problem_response(code, detail, _id(request), headers=error.headers, instead=instead)


_OF_QUEUE = {QueueErrorCode.NO_BUDGET: ProblemCode.INVALID_REQUEST, QueueErrorCode.QUOTA: ProblemCode.QUOTA_SPENT}
_OF_STATUS = {
    404: (ProblemCode.NOT_FOUND, "there is nothing at this address"),
    405: (ProblemCode.METHOD_NOT_ALLOWED, "the address has no such method; /openapi.json lists them"),
    413: (ProblemCode.TOO_LARGE, "the body is too large"),
}


def _id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


RESPONSES: dict[int | str, dict[str, Any]] = {
    int(status): {
        "description": code.replace("-", " "),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    for code, status in reversed(_STATUSES.items())
    if code is not ProblemCode.INTERNAL
}
"""What every operation may answer with, for its description."""
