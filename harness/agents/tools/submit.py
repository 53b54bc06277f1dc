"""The tools named `submit`: read the result from the sandbox; a rejected submission returns the reason to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace


class Submit:
    """Submits the agent's work, which `collect` reads and judges."""

    name = "submit"
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    def __init__(self, description: str, collect: Callable[[Workspace], Observation]) -> None:
        """collect: reads the work from the workspace; the rollout goes on if its observation is not `done`."""
        self.description, self._collect = description, collect

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Submit the work."""
        return self._collect(workspace)


class SubmitPatch:
    """Submits a patch file of the sandbox, which `collect` reads and judges."""

    name = "submit"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "the path of a git diff"}},
        "required": ["path"],
    }

    def __init__(self, description: str, collect: Callable[[Workspace, str], Observation]) -> None:
        """collect: reads the file of a path; the rollout goes on if its observation is not `done`."""
        self.description, self._collect = description, collect

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Submit the file."""
        return self._collect(workspace, arguments["path"])
