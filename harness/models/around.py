"""What models that wrap another one share: all but how they reply."""

from __future__ import annotations

from collections.abc import Sequence

from harness.messages import Message
from harness.models.protocol import Model, ToolSchema


class Around:
    """Is in everything as the model within."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name

    @property
    def identity(self) -> str:
        """As the model's."""
        return str(getattr(self._model, "identity", ""))

    @property
    def context_tokens(self) -> int:
        """As the model's."""
        return self._model.context_tokens

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Count as the model does."""
        return self._model.count(messages, tools=tools)

    def close(self) -> None:
        """Close the model."""
        self._model.close()
