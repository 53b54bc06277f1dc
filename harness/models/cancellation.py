"""Stop waiting for a model when the run is interrupted: a server may take minutes, an interrupt must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.models.protocol import Model, ToolSchema
from harness.models.timeouts import is_ready, start_query
from harness.models.wrapper import ModelWrapper
from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.interrupts import raise_if_stopped

_POLL_S = 0.1
_T = TypeVar("_T")


class CancellableModel(ModelWrapper):
    """Wraps a model so that an interrupt ends the wait for it."""

    @property
    def context_tokens(self) -> int:
        """The context window of the wrapped model; this may start its server."""
        return _wait_for(lambda: self._model.context_tokens)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model, and wait for the reply or for an interrupt."""
        return _wait_for(lambda: self._model.reply(messages, tools=tools, sampling=sampling))

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return the model's token count, which may query a server; an interrupt ends the wait."""
        return _wait_for(lambda: self._model.count(messages, tools=tools))

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return CancellableModel(self._model.session(rollout))


def _wait_for(query: Callable[[], _T]) -> _T:
    future = start_query(query)
    while not is_ready(future, _POLL_S):
        raise_if_stopped()
    return future.result()
