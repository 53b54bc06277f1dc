"""The base class of models that wrap another model."""

from __future__ import annotations

from collections.abc import Sequence

from harness.models.protocol import Model, ToolSchema
from harness.records.messages import Message


class ModelWrapper:
    """Delegates everything except `reply` and `session` to the wrapped model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name

    @property
    def identity(self) -> str:
        """The identity of the wrapped model."""
        return str(getattr(self._model, "identity", ""))

    @property
    def context_tokens(self) -> int:
        """The context window of the wrapped model."""
        return self._model.context_tokens

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the wrapped model's token count."""
        return self._model.count(messages, tools=tools)

    def close(self) -> None:
        """Close the wrapped model."""
        self._model.close()
