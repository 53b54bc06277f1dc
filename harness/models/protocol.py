"""The interface of models: a reply to messages and tools, from a server, a script or a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.records.messages import Message, Reply, Sampling

ToolSchema = Mapping[str, Any]
"""One tool as the OpenAI protocol describes it: `{"type": "function", "function": {"name", "parameters", ...}}`."""


class Model(Protocol):
    """A chat model."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def context_tokens(self) -> int:
        """The size of the context window: the tokens of a prompt and its reply together."""

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the model's reply to the messages.

        Raises ModelError if there is none; ContextError if the prompt does not fit.
        """

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return how many tokens these messages have as a prompt; never fewer than the server will count."""

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout: a script starts at its first reply, a server is shared."""

    def close(self) -> None:
        """Release the model's resources, such as a server that it started; idempotent."""
