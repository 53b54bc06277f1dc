"""A model that keeps to a budget of money, tokens and requests, for all rollouts of a run together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.messages import Message, Reply, Sampling, Usage
from harness.models.around import Around
from harness.models.protocol import Model, ToolSchema
from pytest_ssr.errors import ModelError, SettingsError


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
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing; raises SettingsError."""
        for name in ("usd", "tokens", "calls"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SettingsError(f"a budget of {value} {name} allows nothing")

    def require(self) -> None:
        """Raise BudgetSpentError when nothing is left."""
        used = self.spent.prompt_tokens + self.spent.completion_tokens
        for name, limit, spent in (
            ("USD", self.usd, self.spent_usd),
            ("tokens", self.tokens, used),
            ("calls", self.calls, self.made),
        ):
            if limit is not None and spent >= limit:
                raise BudgetSpentError(f"the budget of {limit:g} {name} is spent; a larger one goes on from here")

    def take(self, reply: Reply) -> None:
        """Count a reply, unless it was paid for before."""
        if reply.cached:
            return
        with self._lock:
            self.made += 1
            self.spent = self.spent + reply.usage
            self.spent_usd += reply.cost_usd or 0.0
            self.unpriced += reply.cost_usd is None


class Spending(Around):
    """Wraps a model."""

    def __init__(self, model: Model, budget: Budget) -> None:
        super().__init__(model)
        self._budget = budget

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Ask while something is left."""
        self._budget.require()
        reply = self._model.reply(messages, tools=tools, sampling=sampling)
        self._budget.take(reply)
        return reply

    def session(self, rollout: str) -> Model:
        """Return the model as one rollout uses it."""
        return Spending(self._model.session(rollout), self._budget)
