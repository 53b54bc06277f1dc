"""Write the source of a suggested test."""

from __future__ import annotations

import re
from collections.abc import Sized
from decimal import Decimal

from pytest_ssr.escaping import escaped_line
from pytest_ssr.suggestions.calls import Call
from pytest_ssr.suggestions.literals import Literal, imports_of, source_of
from pytest_ssr.suggestions.outcomes import TEXT, CallOutcome, OutcomeKind

MOST_CHARACTERS = 700
"""Characters of the call and the expected value; a longer test is no suggestion."""
_WIDTH, _MOST_CHANGE = 88, 70


def skeleton(call: Call, expected: CallOutcome, changed: CallOutcome, change: str, *, attribute: str = "") -> str:
    """Return a test file that demands the outcome of the original.

    changed: the outcome with the change. change: what the test notices, as one line. attribute: of the result,
    or `TEXT`.
    """
    raises = expected.kind is OutcomeKind.RAISES
    own, standard = {call.imports}, call.value_imports | imports_of(expected.value)
    if raises and expected.module != "builtins":
        name = expected.name.partition(".")[0]
        same = call.imports.startswith(f"from {expected.module} import ")
        own = {_with_name(call.imports, name)} if same else {*own, f"from {expected.module} import {name}"}
    groups = [sorted(standard, reverse=True), ["import pytest"] if raises else [], sorted(own)]
    lines = "\n\n".join("\n".join(group) for group in groups if group).split("\n")
    lines += ["", "", f"def {name_of(call, expected)}():", f"    # notices: {change}"]
    if raises:
        lines += [f"    with pytest.raises({expected.name}):", f"        {call.expression}"]
    else:
        expression = call.expression
        if attribute == TEXT:
            expression = f"str({expression})"
        elif attribute:
            expression = f"{_in_parentheses(expression)}.{attribute}"
        lines += _assertion(expression, expected, changed)
    return "\n".join(lines) + "\n"


def _with_name(statement: str, name: str) -> str:
    """Return a `from` statement that imports one more name."""
    start, _, imported = statement.rpartition(" import ")
    return f"{start} import {', '.join(sorted({imported, name}, key=_as_sorted_by_isort))}"


def _as_sorted_by_isort(name: str) -> tuple[bool, bool, str]:
    """Constants come first, then classes, then functions."""
    return not name.isupper(), not name[:1].isupper(), name


def change_text(diff: str) -> str:
    """Return what a diff changes as one line, such as `return a + b -> return a - b`."""
    removed, added = ([line[1:].strip() for line in _changed(diff, sign)] for sign in "-+")
    old, new = (next(filter(None, lines), "") for lines in (removed, added))
    more = " ..." if max(len(removed), len(added)) > 1 else ""
    return f"{_short(old) or '(nothing)'} -> {_short(new) or '(nothing)'}{more}"


def name_of(call: Call, expected: CallOutcome) -> str:
    """Return the name of the test, from the function and the values it is called with."""
    words = [_word(a.name, a.value) for a in (*call.init, *call.given) if call.function.defaults.get(a.name) != a.value]
    words = [word for word in words if word][:3]
    if expected.kind is OutcomeKind.RAISES:
        words.append("raises")
    name = "_".join([call.subject, *words] if call.subject else words)
    return "test_" + re.sub(r"\W+", "_", name)[:60].strip("_").lower()


def _assertion(expression: str, expected: CallOutcome, changed: CallOutcome) -> list[str]:
    if isinstance(expected.value, bool) and (changed.kind is OutcomeKind.RAISES or isinstance(changed.value, bool)):
        return [f"    assert {expression}" if expected.value else f"    assert not {_in_parentheses(expression)}"]
    operator = "is" if isinstance(expected.value, bool | None) else "=="
    if expected.kind is OutcomeKind.ITEMS:
        expression = f"list({expression})"
    value = source_of(expected.value)
    line = f"    assert {_in_parentheses(expression)} {operator} {value}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"    result = {expression}", f"    assert result {operator} {value}"]


def _in_parentheses(expression: str) -> str:
    """Return an expression in parentheses if it may be a comparison, which other operators would continue."""
    return f"({expression})" if re.search(r" (in|[=!<>]=?) ", expression) else expression


def _word(name: str, value: Literal) -> str:
    if isinstance(value, bool):
        return name if value else f"not_{name}"
    if isinstance(value, int | float | Decimal):
        return ("minus_" if value < 0 else "") + f"{abs(value):g}".replace(".", "_").replace("+", "")
    if value is None:
        return f"no_{name}"
    if isinstance(value, str):
        slug = re.sub(r"[^a-zA-Z0-9]+", "_", value[:24]).strip("_")
        return slug or (f"empty_{name}" if not value else name)
    return f"empty_{name}" if isinstance(value, Sized) and not value else name


def _changed(diff: str, sign: str) -> list[str]:
    return [line for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3)]


def _short(text: str) -> str:
    shown = escaped_line(text)
    return shown if len(shown) <= _MOST_CHANGE else f"{shown[:_MOST_CHANGE]}..."
