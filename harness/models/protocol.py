"""The seam to models: messages and tools in, a reply out; whatever server, script or recording is behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.messages import Message, Reply, Sampling

ToolSchema = Mapping[str, Any]
"""One tool as the OpenAI protocol describes it: `{"type": "function", "function": {"name", "parameters", ...}}`."""


class Model(Protocol):
    """A model that answers."""

    @property
    def name(self) -> str:
        """As users name it."""

    @property
    def context_tokens(self) -> int:
        """Tokens that a prompt and its reply may have together."""

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the next message.

        Raises ModelError when none can be had; ContextError when the prompt does not fit.
        """

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return how many tokens these messages are as a prompt; never fewer than the server will count."""

    def session(self, rollout: str) -> Model:
        """Return the model as one rollout uses it: a script starts anew there, a server is the same for all."""

    def close(self) -> None:
        """Let go of what the model holds (a server it started); idempotent."""
