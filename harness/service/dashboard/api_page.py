"""Compute the page that describes the API, from its own description, so that nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_METHODS = ("get", "post", "put", "patch", "delete")
_REFERENCE = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    place: str
    """path, query or header."""
    kind: str
    is_required: bool
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that the API does."""

    method: str
    path: str
    title: str
    text: str
    parameters: Sequence[Parameter]
    body: str
    """The JSON schema of what is sent; empty without a body."""
    answer: str
    """The JSON schema of the answer; empty without one."""
    example: str
    """A command that calls it."""


@dataclass(frozen=True, slots=True)
class ApiPage:
    """The operations by their subject."""

    groups: Mapping[str, Sequence[Operation]]
    has_tokens: bool


def api_page(description: Mapping[str, Any], address: str, *, has_tokens: bool) -> ApiPage:
    """Return the page for a description in the form of OpenAPI. address: of the service, for examples."""
    groups: dict[str, list[Operation]] = {}
    schemas = description.get("components", {}).get("schemas", {})
    for path, methods in description["paths"].items():
        for method in _METHODS:
            if method in methods:
                found = methods[method]
                operation = _operation(method, path, found, schemas, address, has_tokens=has_tokens)
                groups.setdefault(found.get("tags", ["more"])[0], []).append(operation)
    return ApiPage(groups, has_tokens)


def _operation(
    method: str,
    path: str,
    data: Mapping[str, Any],
    schemas: Mapping[str, Any],
    address: str,
    *,
    has_tokens: bool,
) -> Operation:
    body = _schema_in(data.get("requestBody", {}), schemas)
    successes = [answer for status, answer in data.get("responses", {}).items() if status.startswith("2")]
    text = str(data.get("description", ""))
    words = ["curl", *(["-H", "'Authorization: Bearer TOKEN'"] if has_tokens else [])]
    if method != "get":
        words += ["-X", method.upper()]
    if body:
        words += ["-H", "'Content-Type: application/json'", "-d", "'{...}'"]
    words.append(re.sub(r"\{(\w+)(:path)?\}", lambda match: match[1].upper(), f"{address}{path}"))
    return Operation(
        method.upper(),
        path,
        text.partition("\n")[0] or str(data.get("summary", "")),
        text.partition("\n")[2].strip(),
        [_parameter(item) for item in data.get("parameters", ())],
        body,
        _schema_in(successes[0], schemas) if successes else "",
        " ".join(words),
    )


def _parameter(data: Mapping[str, Any]) -> Parameter:
    schema = data.get("schema", {})
    kinds = [str(part.get("type", "")) for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    text = str(data.get("description", ""))
    return Parameter(str(data["name"]), str(data["in"]), " or ".join(kinds), bool(data.get("required")), text)


def _schema_in(part: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the schema of a body or of an answer as text, with those that it refers to; empty without one."""
    schema = part.get("content", {}).get("application/json", {}).get("schema")
    if not schema:
        return ""
    text = json.dumps(schema, indent=1)
    named: dict[str, Any] = {}
    waiting = re.findall(rf"{_REFERENCE}([\w-]+)", text)
    while waiting:
        name = waiting.pop()
        if name not in named and name in schemas:
            named[name] = schemas[name]
            waiting += re.findall(rf"{_REFERENCE}([\w-]+)", json.dumps(schemas[name]))
    shown = {"schema": schema, **named} if named else schema
    return json.dumps(shown, indent=1).replace(_REFERENCE, "")
