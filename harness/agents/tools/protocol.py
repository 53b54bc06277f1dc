"""The seam for tools: arguments in, an observation out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.agents.desk import Desk


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool has to say."""

    text: str
    """What the model is shown, before it is elided."""
    exit_code: int | None = None
    """Of a command."""
    limit: str = ""
    """The limit that ended it."""
    seconds: float = 0.0
    elided_chars: int = 0
    """Characters that are left out of the text already."""
    done: bool = False
    """The rollout ends with this."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What came out of the rollout, where it ends."""


class Tool(Protocol):
    """Something that an agent can use."""

    @property
    def name(self) -> str:
        """What it is called by."""

    @property
    def description(self) -> str:
        """For the model."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments."""

    def use(self, arguments: Mapping[str, Any], desk: Desk) -> Observation:
        """Use it; a mistake of the model is an observation. Raises SandboxError when the sandbox breaks."""


class ToolBundle(Protocol):
    """A folder of further tools."""

    @property
    def folder(self) -> Path:
        """Where it lies."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What it offers."""

    def install(self, desk: Desk) -> None:
        """Put it into a sandbox; raises SettingsError when that fails."""


def further_tools(bundles: Sequence[ToolBundle]) -> list[Tool]:
    """Return the tools of all bundles."""
    return [tool for bundle in bundles for tool in bundle.tools]


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return a tool as the OpenAI protocol describes it."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def problem(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return what is wrong with arguments by the tool's schema, or an empty text: missing, unknown, of another type."""
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "boolean": (bool,),
        "array": (list,),
        "number": (int, float),
        "object": (dict,),
    }
    properties = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if name not in arguments:
            return f"the argument {name!r} is missing"
    for name, value in arguments.items():
        if name not in properties:
            return f"there is no argument {name!r}; there are {', '.join(properties) or 'none'}"
        wanted = properties[name].get("type", "")
        is_truth = isinstance(value, bool) and wanted in ("integer", "number")
        if wanted in kinds and (is_truth or not isinstance(value, kinds[wanted])):
            return f"the argument {name!r} must be of type {wanted}"
        if "enum" in properties[name] and value not in properties[name]["enum"]:
            return f"the argument {name!r} must be one of {', '.join(map(str, properties[name]['enum']))}"
    return ""
