"""The interface of tools, their observations, and the check of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.agents.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of a tool call."""

    text: str
    """The text for the model, before it is shortened."""
    exit_code: int | None = None
    """The exit code of a command; None if it has none."""
    limit: str = ""
    """The limit that ended it; empty if none did."""
    seconds: float = 0.0
    elided_chars: int = 0
    """Number of characters already omitted from the text."""
    done: bool = False
    """Whether the rollout ends with this observation."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The result of the rollout, if it ends."""


class Tool(Protocol):
    """A tool that an agent can call."""

    @property
    def name(self) -> str:
        """The name in tool calls."""

    @property
    def description(self) -> str:
        """The description for the model."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Run the tool; a mistake of the model becomes an observation. Raises SandboxError when the sandbox breaks."""


class ToolBundle(Protocol):
    """A folder of additional tools."""

    @property
    def folder(self) -> Path:
        """The path of the folder."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools in the folder."""

    def install(self, workspace: Workspace) -> None:
        """Copy the bundle into a sandbox; raises SettingsError if that fails."""


def further_tools(bundles: Sequence[ToolBundle]) -> list[Tool]:
    """Return the tools of all bundles."""
    return [tool for bundle in bundles for tool in bundle.tools]


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return a tool's schema in the form of the OpenAI protocol."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def argument_problem(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return how arguments violate the tool's schema (missing, unknown, of another type), or an empty string."""
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
            return f"{name!r} is not an argument; the arguments are {', '.join(properties) or 'none'}"
        expected = properties[name].get("type", "")
        is_bool_as_number = isinstance(value, bool) and expected in ("integer", "number")
        if expected in kinds and (is_bool_as_number or not isinstance(value, kinds[expected])):
            return f"the argument {name!r} must be of type {expected}"
        if "enum" in properties[name] and value not in properties[name]["enum"]:
            return f"the argument {name!r} must be one of {', '.join(map(str, properties[name]['enum']))}"
    return ""
