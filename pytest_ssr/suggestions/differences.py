"""Evaluate calls on the original and on the changed code, and sort those that differ, the best for a test first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.suggested_test import NoSuggestion
from pytest_ssr.suggestions.calls import AnyCall
from pytest_ssr.suggestions.literals import source_of
from pytest_ssr.suggestions.outcomes import (
    CallOutcome,
    OutcomeKind,
    Place,
    can_be_expected,
    differ_in_container,
    evaluate,
    is_noticed,
    is_same,
    outcome_at,
)

_MOST_ODDNESS = 1
"""A call of more oddness shows something, but not as a test that anyone would keep."""
_REPEATED_SEEDS = (1, 2)
"""Hash seeds of repeated calls: a result that depends on the order of a small set is often the same for two of them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A call whose outcome a change alters."""

    call: AnyCall
    expected: CallOutcome
    changed: CallOutcome
    attribute: str
    """Which attribute of the result shows it; empty for the result itself."""
    nearness: int
    """How many functions are between the called function and the changed one."""

    @property
    def order(self) -> tuple[object, ...]:
        """The best comes first: a public function, a value, plain values as in tests, a short call."""
        raises = self.expected.kind is OutcomeKind.RAISES
        text, call = self.call.expression, self.call
        shown = bool(self.attribute), self.attribute == "__str__", len(text), text, self.attribute
        # Of `None` and of empty containers, a test shows little.
        is_empty = not raises and not self.expected.value and not isinstance(self.expected.value, bool | int | float)
        return call.is_private, raises, is_empty, self.oddness, self.nearness, call.steps, *shown

    @property
    def oddness(self) -> int:
        """How unusual a test of it is: what the call is given, and what it shows."""
        return self.call.oddness + differ_in_container(self.expected, self.changed)

    @property
    def size(self) -> int:
        """How long a test of it is, in characters."""
        return len(self.call.expression) + len(source_of(self.expected.value))


def differences(
    runner: Runner, numbered: Sequence[tuple[int, AnyCall]], changed: CodebaseState, sources: Mapping[str, bytes]
) -> list[Difference] | NoSuggestion:
    """Return the calls that a change alters, the best for a test first, or the reason that there are none.

    numbered: calls with their nearness. sources: the project's code. Raises SandboxError.
    """
    calls = [call for _, call in numbered]
    first = evaluate(runner, runner.original, calls, hash_seed=0)
    after = evaluate(runner, changed, calls, hash_seed=0)
    pairs: list[tuple[Place, CallOutcome]] = []
    for (index, attribute), outcome in first.items():
        if 0 <= index < len(calls) and can_be_expected(outcome, sources):
            new = outcome_at(after, (index, attribute))
            if new is not None and is_noticed(outcome, new):
                pairs.append(((index, attribute), new))
    if not pairs:
        return NoSuggestion.NO_DIFFERENCE if first and after else NoSuggestion.LIMIT
    pairs = [(place, new) for place, new in pairs if not _is_odd(calls[place[0]])]
    if not pairs:
        return NoSuggestion.ODD_INPUTS
    again = sorted({index for (index, _), _ in pairs})
    places = {index: number for number, index in enumerate(again)}
    chosen = [calls[index] for index in again]
    others = [evaluate(runner, runner.original, chosen, hash_seed=s, elsewhere=True) for s in _REPEATED_SEEDS]
    found = [
        Difference(calls[index], first[index, attribute], new, attribute, numbered[index][0])
        for (index, attribute), new in pairs
        if all(is_same(first[index, attribute], o.get((places[index], attribute))) for o in others)
    ]
    return sorted(found, key=lambda d: d.order) if found else NoSuggestion.NOT_DETERMINISTIC


def _is_odd(call: AnyCall) -> bool:
    """Return whether nobody would call a function so; of a private one, only calls in tests are known to happen."""
    calls_special = re.search(r"\.__\w+__\(", call.expression) is not None
    return call.oddness > _MOST_ODDNESS or calls_special or (call.is_private and call.steps > 0)
