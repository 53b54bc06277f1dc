"""A model that is waited for only as long as the run goes on: servers may take minutes, an interrupt may not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.messages import Message, Reply, Sampling
from harness.models.around import Around
from harness.models.protocol import Model, ToolSchema
from harness.models.waiting import begun, is_there
from pytest_ssr.stopping import require_going_on

_LOOK_S = 0.1
_T = TypeVar("_T")


class Stoppable(Around):
    """Wraps a model."""

    @property
    def context_tokens(self) -> int:
        """As the model's; a server may have to be started for it."""
        return _waited(lambda: self._model.context_tokens)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Ask, and wait for the reply or for the end of the run."""
        return _waited(lambda: self._model.reply(messages, tools=tools, sampling=sampling))

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Count likewise: a server may be asked."""
        return _waited(lambda: self._model.count(messages, tools=tools))

    def session(self, rollout: str) -> Model:
        """Return the model as one rollout uses it."""
        return Stoppable(self._model.session(rollout))


def _waited(ask: Callable[[], _T]) -> _T:
    answer = begun(ask)
    while not is_there(answer, _LOOK_S):
        require_going_on()
    return answer.result()
