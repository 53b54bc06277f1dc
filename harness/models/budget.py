"""Limit the cost, tokens and requests of all rollouts of a run together.

A call starts while the amount spent, plus the largest amount of any call so far for each call in progress, is below
the limit; the first call runs alone. A limit is therefore exceeded by less than one call, unless calls become more
expensive; then also by how much the calls in progress exceed the earlier maximum.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.models.middleware import ModelWrapper
from harness.models.protocol import Model, ToolSchema
from harness.records.messages import Message, Reply, Sampling, Usage
from pytest_ssr.errors import ModelError, SettingsError
from pytest_ssr.interrupts import raise_if_stopped

_POLL_S = 0.1


class BudgetSpentError(ModelError):
    """The run's budget is spent; finished work is kept, and a run with a larger budget continues from there."""


@dataclass(slots=True)
class Budget:
    """The limits of a run, and the amounts spent so far."""

    usd: float | None = None
    """Maximum cost in USD; None for no limit. Calls without a known price count as zero."""
    tokens: int | None = None
    """Maximum of prompt and reply tokens together; None for no limit."""
    calls: int | None = None
    spent_usd: float = 0.0
    spent: Usage = field(default_factory=Usage)
    completed_calls: int = 0
    unpriced: int = 0
    """Calls whose price is unknown."""
    estimated: int = 0
    """Calls whose token counts are estimated."""
    _dearest_usd: float = 0.0
    _dearest_tokens: int = 0
    _under_way: int = 0
    _changed: Any = field(default_factory=threading.Condition, repr=False)

    def __post_init__(self) -> None:
        """Raise SettingsError for a limit that is not positive."""
        for name in ("usd", "tokens", "calls"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SettingsError(f"a budget of {value} {name} allows nothing")

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Reserve a call; wait for calls in progress if the budget depends on them.

        Raises BudgetSpentError when the budget is spent.
        """
        with self._changed:
            while not self._can_start():
                self._changed.wait(_POLL_S)
                raise_if_stopped()
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _can_start(self) -> bool:
        for name, limit, spent, dearest in (
            ("USD", self.usd, self.spent_usd, self._dearest_usd if self.completed_calls else None),
            ("tokens", self.tokens, total_tokens(self.spent), self._dearest_tokens if self.completed_calls else None),
            ("calls", self.calls, self.completed_calls, 1),
        ):
            if limit is None:
                continue
            if spent >= limit:
                raise BudgetSpentError(f"the budget of {limit:g} {name} is spent; continue with a larger one")
            if self._under_way and (dearest is None or spent + self._under_way * dearest >= limit):
                return False
        return True

    def take(self, reply: Reply) -> None:
        """Count a reply, unless it came from a cache and was paid for earlier."""
        if reply.cached:
            return
        with self._changed:
            self.completed_calls += 1
            self.spent = self.spent + reply.usage
            self.spent_usd += reply.cost_usd or 0.0
            self.unpriced += reply.cost_usd is None
            self.estimated += reply.usage.estimated
            self._dearest_usd = max(self._dearest_usd, reply.cost_usd or 0.0)
            self._dearest_tokens = max(self._dearest_tokens, total_tokens(reply.usage))


def total_tokens(usage: Usage) -> int:
    """Return the tokens that count for a budget: prompt and reply together."""
    return usage.prompt_tokens + usage.completion_tokens


class BudgetedModel(ModelWrapper):
    """Wraps a model and charges its calls to a budget."""

    def __init__(self, model: Model, budget: Budget) -> None:
        super().__init__(model)
        self._budget = budget

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Query the model if the budget allows it; raises BudgetSpentError otherwise."""
        with self._budget.call():
            reply = self._model.reply(messages, tools=tools, sampling=sampling)
            self._budget.take(reply)
        return reply

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout."""
        return BudgetedModel(self._model.session(rollout), self._budget)
