"""A model that keeps to a budget of money, tokens and requests, for all rollouts of a run together.

A call is made while what is spent, and for each call under way as much as the dearest one so far, is below the limit;
the first is waited for. So a limit is passed by less than one call, as long as calls do not become dearer; where they
do, by what the calls under way are dearer than that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.messages import Message, Reply, Sampling, Usage
from harness.models.around import Around
from harness.models.protocol import Model, ToolSchema
from pytest_ssr.errors import ModelError, SettingsError
from pytest_ssr.stopping import require_going_on

_LOOK_S = 0.1


class BudgetSpentError(ModelError):
    """The run's budget is used up; what is finished is kept, and a larger one goes on from there."""


@dataclass(slots=True)
class Budget:
    """What may be spent, and what has been."""

    usd: float | None = None
    """Money; None: no limit. Calls without a known price count as nothing."""
    tokens: int | None = None
    """Prompt and reply tokens together."""
    calls: int | None = None
    spent_usd: float = 0.0
    spent: Usage = field(default_factory=Usage)
    made: int = 0
    unpriced: int = 0
    """Calls whose price is not known."""
    estimated: int = 0
    """Calls whose tokens are our estimate."""
    _dearest_usd: float = 0.0
    _dearest_tokens: int = 0
    _under_way: int = 0
    _changed: Any = field(default_factory=threading.Condition, repr=False)

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing; raises SettingsError."""
        for name in ("usd", "tokens", "calls"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SettingsError(f"a budget of {value} {name} allows nothing")

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Hold a place for a call; waits for those under way where it depends on them.

        Raises BudgetSpentError when nothing is left.
        """
        with self._changed:
            while not self._has_room():
                self._changed.wait(_LOOK_S)
                require_going_on()
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _has_room(self) -> bool:
        for name, limit, spent, dearest in (
            ("USD", self.usd, self.spent_usd, self._dearest_usd if self.made else None),
            ("tokens", self.tokens, tokens_of(self.spent), self._dearest_tokens if self.made else None),
            ("calls", self.calls, self.made, 1),
        ):
            if limit is None:
                continue
            if spent >= limit:
                raise BudgetSpentError(f"the budget of {limit:g} {name} is spent; a larger one goes on from here")
            if self._under_way and (dearest is None or spent + self._under_way * dearest >= limit):
                return False
        return True

    def take(self, reply: Reply) -> None:
        """Count a reply, unless it was paid for before."""
        if reply.cached:
            return
        with self._changed:
            self.made += 1
            self.spent = self.spent + reply.usage
            self.spent_usd += reply.cost_usd or 0.0
            self.unpriced += reply.cost_usd is None
            self.estimated += reply.usage.estimated
            self._dearest_usd = max(self._dearest_usd, reply.cost_usd or 0.0)
            self._dearest_tokens = max(self._dearest_tokens, tokens_of(reply.usage))


def tokens_of(usage: Usage) -> int:
    """Return the tokens that count: of prompt and reply."""
    return usage.prompt_tokens + usage.completion_tokens


class Spending(Around):
    """Wraps a model."""

    def __init__(self, model: Model, budget: Budget) -> None:
        super().__init__(model)
        self._budget = budget

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Ask while something is left."""
        with self._budget.call():
            reply = self._model.reply(messages, tools=tools, sampling=sampling)
            self._budget.take(reply)
        return reply

    def session(self, rollout: str) -> Model:
        """Return the model as one rollout uses it."""
        return Spending(self._model.session(rollout), self._budget)
