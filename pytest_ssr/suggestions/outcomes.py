"""Evaluate calls on a state of the code in a sandbox.

The results only choose which test is tried: code under test can forge them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.suite import guest_source, provide_interpreter, run_environment
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.suggestions.calls import AnyCall, is_dotted_name, split_instance
from pytest_ssr.suggestions.functions import raises_at
from pytest_ssr.suggestions.literals import Literal, differ, parse_literal

_MOST_BYTES = 4 * MIB
_MOST_S = 30.0
Place: TypeAlias = tuple[int, str]
"""The index of a call, and an attribute of what it returns; an empty string for the returned value itself."""
TRUTH = "__bool__"
PARTS = {TRUTH: "bool({})", "__str__": "str({})", "__iter__": "list({})", "__items__": "list({}.items())"}
"""What stands for the truth, the text, the items and the pairs of an object as an attribute, and how to write it."""
ELSEWHERE = {"TZ": "Asia/Tokyo", "USER": "guest", "LOGNAME": "guest", "LANG": "C"}
"""Environment variables of another time zone, user and language."""
AFTER = "."
"""Before an attribute: that of the instance after a call of its method."""


class OutcomeKind(StrEnum):
    """What a call does."""

    VALUE = "value"
    ITEMS = "items"
    """It returns an iterator, whose items are known."""
    RAISES = "raises"
    OBJECT = "object"
    """It returns an object, some of whose attributes are known."""
    VARIES = "varies"
    """It does something else when it is repeated."""
    OTHER = "other"
    """It returns something that has no literal, or takes too long."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What one call does."""

    kind: OutcomeKind
    value: Literal = None
    """The returned value, or the list of items."""
    module: str = ""
    """Of the exception, like its name."""
    name: str = ""
    path: str = ""
    """The file of the project that raised it, and the line."""
    line: int = 0


def evaluate(
    runner: Runner, state: CodebaseState, calls: Sequence[AnyCall], *, hash_seed: int, elsewhere: bool = False
) -> dict[Place, CallOutcome]:
    """Return the outcomes; a call that ends the process, and those after it, have none.

    elsewhere: whether to use another time zone, user and language. Raises SandboxError.
    """
    surroundings = ELSEWHERE if elsewhere else {}
    with runner.open(state) as sandbox:
        folder = f"{sandbox.scratch}/{secrets.token_hex(8)}"
        for name in ("call_literals", "call_probe"):
            sandbox.write(f"{folder}/ssr_{name}.py", guest_source(name))
        sandbox.write(f"{folder}/outcomes", b"")
        provide_interpreter(sandbox, runner.interpreter)
        job = {
            "out": f"{folder}/outcomes",
            "cases": [["\n".join(sorted(call.imports)), _binding(call.expression)] for call in calls],
        }
        sandbox.exec(
            [str(runner.interpreter.executable), f"{folder}/ssr_call_probe.py"],
            limits=replace(runner.limits, wall_s=_MOST_S),
            env={**run_environment(sandbox, runner.interpreter, hash_seed=hash_seed), **surroundings},
            stdin=json.dumps(job).encode(),
        )
        runner.counts.runs += 1
        try:
            raw = sandbox.read(f"{folder}/outcomes", max_bytes=_MOST_BYTES)
        except (FileNotFoundError, SandboxError):
            # The project's code can write to the file, and delete it.
            return {}
    return parsed_outcomes(raw)


def parsed_outcomes(raw: bytes) -> dict[Place, CallOutcome]:
    """Read what a guest has written, which is not trusted; lines that are no outcome are left out."""
    outcomes = {}
    for line in raw.splitlines():
        try:
            index, attribute, fields = json.loads(line)
            outcome = _outcome(OutcomeKind(fields[0]), fields[1:])
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            continue
        if isinstance(index, int) and isinstance(attribute, str) and is_place(attribute.removeprefix(AFTER)):
            outcomes[index, attribute] = outcome
    return outcomes


def is_place(attribute: str) -> bool:
    """Return whether a text, which is not trusted, is empty or the name of an attribute."""
    return attribute == "" or (is_dotted_name(attribute) and "." not in attribute)


def _binding(expression: str) -> str:
    """Return an expression that also binds the instance whose method it calls."""
    instance, rest = split_instance(expression)
    return f"(ssr_instance := {instance}){rest}" if instance else expression


def _outcome(kind: OutcomeKind, fields: Sequence[object]) -> CallOutcome:
    if kind in (OutcomeKind.VALUE, OutcomeKind.ITEMS):
        value = parse_literal(fields[0])
        return CallOutcome(kind, value[0]) if value is not None else CallOutcome(OutcomeKind.OTHER)
    if kind is OutcomeKind.RAISES:
        module, name, path, line = fields
        if is_dotted_name(module) and is_dotted_name(name) and isinstance(path, str) and isinstance(line, int):
            return CallOutcome(kind, None, str(module), str(name), path, line)
        return CallOutcome(OutcomeKind.OTHER)
    return CallOutcome(kind)


def outcome_at(outcomes: Mapping[Place, CallOutcome], place: Place) -> CallOutcome | None:
    """Return the outcome at a place on the changed code; None if the call has none."""
    index, attribute = place
    if place in outcomes or attribute.startswith(AFTER):
        return outcomes.get(place)
    # What is returned instead of an object may have no such attribute.
    return outcomes.get((index, ""))


def differ_in_container(original: CallOutcome, changed: CallOutcome) -> bool:
    """Return whether two values have the same items in containers of different types, such as a list and a tuple."""
    containers = (list, tuple, set, frozenset)
    first, second = original.value, changed.value
    if not isinstance(first, containers) or not isinstance(second, containers) or type(first) is type(second):
        return False
    # Lists: the items of one that is no set need not be hashable.
    items, others = list(first), list(second)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return items == others
    return len(items) == len(others) and all(i in others for i in items) and all(i in items for i in others)


def is_noticed(original: CallOutcome, changed: CallOutcome | None) -> bool:
    """Return whether an assertion about the outcome of the original may fail for the changed code."""
    if changed is None or changed.kind in (OutcomeKind.VARIES, OutcomeKind.OTHER):
        return False
    if original.kind is not changed.kind:
        return True
    if original.kind is OutcomeKind.RAISES:
        return (original.module, original.name) != (changed.module, changed.name)
    return differ(original.value, changed.value)


def is_same(first: CallOutcome, second: CallOutcome | None) -> bool:
    """Return whether two runs on the original agree."""
    return second is not None and first.kind is second.kind and not is_noticed(first, second)


def can_be_expected(outcome: CallOutcome, sources: Mapping[str, bytes]) -> bool:
    """Return whether an outcome of the original is one that a test may demand; see `raises_at`."""
    if outcome.kind is OutcomeKind.RAISES:
        return outcome.path in sources and raises_at(sources[outcome.path], outcome.line)
    return outcome.kind in (OutcomeKind.VALUE, OutcomeKind.ITEMS)
