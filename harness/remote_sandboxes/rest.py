"""Speak the calls in JSON, for any HTTP client, and describe that as OpenAPI, from the classes of the calls.

A call is a request with the call's arguments as a JSON object, its blobs in Base64 beside them, and its key in a
header. The reply is an object with the result and its blobs, or a Refusal.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from harness.remote_sandboxes.calls import ARGUMENTS, Arguments, ErrorCode, Operation, Refusal, RemoteError
from harness.remote_sandboxes.messages import Reply, Request
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import decode, json_object, json_schemas, of_shape

MEDIA_TYPE = "application/json"
KEY_HEADER = "Idempotency-Key"
RUNS = HTTPStatus.ACCEPTED
"""The status while the call still runs; the same request, with the same key, waits for its reply."""
STATUSES: Mapping[ErrorCode, HTTPStatus] = {
    ErrorCode.SANDBOX: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.FILE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.LIMIT: HTTPStatus.CONFLICT,
    ErrorCode.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.CACHE_FULL: HTTPStatus.INSUFFICIENT_STORAGE,
    ErrorCode.UNKNOWN_SANDBOX: HTTPStatus.NOT_FOUND,
    ErrorCode.UNKNOWN_TREE: HTTPStatus.NOT_FOUND,
    ErrorCode.NO_IMAGES: HTTPStatus.NOT_IMPLEMENTED,
    ErrorCode.IMAGE_NOT_ALLOWED: HTTPStatus.FORBIDDEN,
    ErrorCode.IMAGE_UNAVAILABLE: HTTPStatus.BAD_GATEWAY,
    ErrorCode.CANCELLED: HTTPStatus.CONFLICT,
    ErrorCode.CLOSING: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.FORGOTTEN: HTTPStatus.GONE,
    ErrorCode.KEY_REUSED: HTTPStatus.CONFLICT,
    ErrorCode.CEILING: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.MALFORMED: HTTPStatus.BAD_REQUEST,
    ErrorCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
    ErrorCode.FOREIGN_HOST: HTTPStatus.FORBIDDEN,
    ErrorCode.BROWSER: HTTPStatus.FORBIDDEN,
    ErrorCode.MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ErrorCode.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.OTHER_SYSTEM: HTTPStatus.NOT_FOUND,
}
GET, POST = "GET", "POST"
_ROUTES = {Operation.LIST_IMAGES: (GET, "/images"), Operation.PULL_IMAGE: (POST, "/images")}
_REFERENCE = "#/components/schemas/{name}"
_BASE64 = {"type": "string", "contentEncoding": "base64"}


def route_of(kind: type[Arguments]) -> tuple[str, str]:
    """Return the method and the path of an operation; `{sandbox}` stands for the id of a sandbox.

    GET has neither a key nor a body.
    """
    prefix = "/v1/sandboxes/{sandbox}" if kind.needs_sandbox else "/v1"
    return _ROUTES.get(kind.operation, (POST, f"{prefix}/{kind.operation}"))


def encode_request(request: Request) -> bytes:
    """Return the body of a request, without the sandbox and the key."""
    arguments, blobs = request.arguments, [base64.b64encode(blob).decode() for blob in request.blobs]
    fields = {arguments.blob_list: blobs} if arguments.blob_list else dict(zip(arguments.blobs, blobs, strict=True))
    return json.dumps({**asdict(arguments), **fields}).encode()


def decode_request(kind: type[Arguments], body: bytes, *, sandbox: str, key: str) -> Request:
    """Return the call; raises RemoteError for a body that is not valid, also for fields that do not exist.

    A misspelt limit would otherwise be the default one.
    """
    data = json_object(body or b"{}")
    if data is None:
        raise RemoteError(ErrorCode.MALFORMED, "the body is not a JSON object")
    try:
        texts = of_shape(list[str], data.pop(kind.blob_list, [])) if kind.blob_list else []
        texts += [of_shape(str, data.pop(name, "")) for name in kind.blobs]
        blobs = tuple(base64.b64decode(text, validate=True) for text in texts)
        unknown = _unknown_field(data, asdict(of_shape(kind, data)))
    except binascii.Error:
        raise RemoteError(ErrorCode.MALFORMED, "a part of the body is not Base64") from None
    except ValueError as error:
        raise RemoteError(ErrorCode.MALFORMED, f"the body is not valid: {error}") from None
    if unknown:
        raise RemoteError(ErrorCode.MALFORMED, f"the body has a field {unknown[:100]!r}, which does not exist")
    return Request.of({"operation": kind.operation, "key": key, "sandbox": sandbox, "arguments": data}, blobs)


def encode_reply(kind: type[Arguments], reply: Reply) -> tuple[HTTPStatus, bytes]:
    """Return the status and the body for a reply."""
    if reply.code is not None:
        return STATUSES[reply.code], json.dumps(asdict(Refusal(reply.code, reply.message))).encode()
    blobs = [base64.b64encode(blob).decode() for blob in reply.blobs]
    body = {**reply.result, **dict(zip(kind.result_blobs, blobs, strict=True))}
    return HTTPStatus.OK, json.dumps(body).encode()


def decode_reply(kind: type[Arguments], status: int, body: bytes) -> Reply | None:
    """Return the reply that a response holds; None if the response is not that of a sandbox server."""
    data = json_object(body)
    if data is None:
        return None
    try:
        if status != HTTPStatus.OK:
            refusal = decode(Refusal, data)
            return Reply(code=refusal.code, message=refusal.message)
        texts = [of_shape(str, data.pop(name, None)) for name in kind.result_blobs]
        return Reply(data, tuple(base64.b64decode(text, validate=True) for text in texts))
    except (StoreError, ValueError):
        return None


def openapi() -> dict[str, Any]:
    """Return the description of all calls."""
    results = [kind.result for kind in ARGUMENTS.values() if kind.result is not None]
    schemas = json_schemas(ARGUMENTS.values(), _REFERENCE)
    for schema in schemas.values():
        schema["additionalProperties"] = False
    schemas |= json_schemas([*results, Refusal], _REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for kind in ARGUMENTS.values():
        sent = schemas[kind.__name__]["properties"]
        sent |= {name: {**_BASE64, "default": ""} for name in kind.blobs}
        if kind.blob_list:
            sent[kind.blob_list] = {"type": "array", "items": _BASE64}
        result = schemas[kind.result.__name__] if kind.result is not None else {}
        required = [*result.get("required", ()), *kind.result_blobs]
        properties = {**result.get("properties", {}), **dict.fromkeys(kind.result_blobs, _BASE64)}
        schemas[f"{kind.__name__}Reply"] = {"type": "object", "properties": properties, "required": required}
        method, path = route_of(kind)
        paths.setdefault(path, {})[method.lower()] = _described(kind, has_body=method == POST)
    return {
        "openapi": "3.1.0",
        "info": {"title": "pytest-ssr sandbox server", "version": "1"},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _described(kind: type[Arguments], *, has_body: bool) -> dict[str, Any]:
    key = {"name": KEY_HEADER, "in": "header", "required": True, "schema": {"type": "string", "minLength": 16}}
    sandbox = {"name": "sandbox", "in": "path", "required": True, "schema": {"type": "string"}}
    sent = {"requestBody": _content(kind.__name__)} if has_body else {}
    return {
        "operationId": kind.operation,
        "description": kind.__doc__,
        "parameters": [key] * has_body + [sandbox] * kind.needs_sandbox,
        **sent,
        "responses": {
            "200": {"description": "The call has ended.", **_content(f"{kind.__name__}Reply")},
            "202": {"description": "The call still runs; send the same request again."},
            "default": {"description": "The call was refused, or failed.", **_content(Refusal.__name__)},
        },
    }


def _content(schema: str) -> dict[str, Any]:
    return {"content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(name=schema)}}}}


def _unknown_field(data: object, known: object) -> str:
    """Return the first name in the data that the decoded object does not have, or an empty string."""
    pairs: list[tuple[object, object]] = []
    if isinstance(data, dict) and isinstance(known, dict):
        for name, value in data.items():
            if name not in known:
                return str(name)
            pairs.append((value, known[name]))
    elif isinstance(data, list) and isinstance(known, tuple):
        pairs = list(zip(data, known, strict=True))
    return next(filter(None, (_unknown_field(*pair) for pair in pairs)), "")
