"""The tool `submit`: what is handed in is read out of the sandbox, and a rejected hand-in may be told why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.agents.desk import Desk
from harness.agents.tools.protocol import Observation


class Submit:
    """Hands in; what is made of it is decided by `take`."""

    name = "submit"
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    def __init__(self, description: str, take: Callable[[Desk], Observation]) -> None:
        """take: reads what is there; an observation that is not `done` sends the agent on with its text."""
        self.description, self._take = description, take

    def use(self, arguments: Mapping[str, Any], desk: Desk) -> Observation:
        """Hand in."""
        return self._take(desk)
