"""Write the source of a suggested test."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Collection, Sequence, Sized
from decimal import Decimal

from pytest_ssr.escaping import escaped_line
from pytest_ssr.suggestions.calls import AnyCall, import_of, split_instance
from pytest_ssr.suggestions.chains import unchained
from pytest_ssr.suggestions.literals import Literal, imports_of, source_of
from pytest_ssr.suggestions.outcomes import AFTER, PARTS, TRUTH, CallOutcome, OutcomeKind

MOST_CHARACTERS = 700
"""Characters of the call and the expected value; a longer test is no suggestion."""
_HUNK = re.compile(r"@@ -(\d+)")
_WIDTH, _MOST_CHANGE = 84, 70


def skeleton(
    call: AnyCall, expected: CallOutcome, changed: CallOutcome, changes: Sequence[str], *, attribute: str = ""
) -> str:
    """Return a test file that demands the outcome of the original.

    changed: the outcome with the change. changes: what the test notices, one line each. attribute: of the result,
    one of `PARTS`, or one of the instance with `AFTER` before it.
    """
    raises = expected.kind is OutcomeKind.RAISES
    statements = call.imports | imports_of(expected.value)
    if raises:
        statements |= {"import pytest"}
        if expected.module != "builtins":
            statements |= {import_of(expected.module, expected.name)}
    lines = [*_import_lines(statements), "", "", f"def {name_of(call, expected)}():"]
    lines += notices(changes)
    steps, expression = unchained(call.expression)
    lines += [f"    {step}" for step in steps]
    if raises:
        lines += [f"    with pytest.raises({expected.name}):", f"        {expression}"]
    else:
        if attribute.startswith(AFTER):
            instance, rest = split_instance(expression)
            expression = _variable(instance, statements)
            lines += [f"    {expression} = {instance}", f"    {expression}{rest}"]
        asserted = assertion_of(expression, attribute.removeprefix(AFTER), expected, changed)
        lines += [f"    {line}" for line in asserted]
    return "\n".join(lines) + "\n"


def assertion_of(expression: str, attribute: str, expected: CallOutcome, changed: CallOutcome) -> list[str]:
    """Return the statements that demand the outcome of the original for an attribute of a value."""
    if attribute == TRUTH:
        return [_truth(expression, is_true=bool(expected.value))]
    return _assertion(_part(expression, attribute), expected, changed)


def _part(expression: str, attribute: str) -> str:
    """Return the source of an attribute of a value."""
    if attribute == "":
        return expression
    if attribute in PARTS:
        tightly = not PARTS[attribute].endswith("({})")
        return PARTS[attribute].format(_in_parentheses(expression, tightly=True) if tightly else expression)
    return f"{_in_parentheses(expression, tightly=True)}.{attribute}"


def _variable(instance: str, statements: Collection[str]) -> str:
    """Return the name of a variable for an instance, from that of its class."""
    word = instance.partition("(")[0].rpartition(".")[2]
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    is_taken = keyword.iskeyword(name) or hasattr(builtins, name) or re.search(rf"\b{name}\b", " ".join(statements))
    return name if name.isidentifier() and not is_taken else "instance"


def notices(changes: Sequence[str]) -> list[str]:
    """Return the comment lines of a test that notices changes."""
    return [f"    # notices: {change}" for change in dict.fromkeys(changes)]


def _import_lines(statements: Collection[str]) -> list[str]:
    """Return import statements as isort writes them: the standard library, pytest, the project."""
    groups: tuple[dict[str, list[str]], ...] = ({}, {}, {})
    for statement in sorted(statements):
        start, _, imported = statement.rpartition(" import ") if statement.startswith("from ") else (statement, "", "")
        top = statement.split()[1].partition(".")[0]
        group = 1 if top == "pytest" else 0 if top in sys.stdlib_module_names else 2
        groups[group].setdefault(start, []).append(imported)
    blocks = []
    for names in groups:
        lines = []
        for start in sorted(names, key=lambda text: (text.startswith("from "), text)):
            imported = ", ".join(sorted(names[start], key=_as_sorted_by_isort))
            lines.append(f"{start} import {imported}" if imported else start)
        blocks.append("\n".join(lines))
    return "\n\n".join(filter(None, blocks)).split("\n")


def _as_sorted_by_isort(name: str) -> tuple[bool, bool, str]:
    """Constants come first, then classes, then functions."""
    return not name.isupper(), not name[:1].isupper(), name


def change_text(diff: str) -> str:
    """Return what a diff changes as one line, such as `return a + b -> return a - b`."""
    removed, added = ([line[1:].strip() for line in _changed(diff, sign)] for sign in "-+")
    old, new = (next(filter(None, lines), "") for lines in (removed, added))
    more = " ..." if max(len(removed), len(added)) > 1 else ""
    return f"{_short(old) or '(nothing)'} -> {_short(new) or '(nothing)'}{more}"


def removed_lines(diff: str) -> list[int]:
    """Return the 1-based numbers of the lines of the original that a diff of one file removes or changes."""
    found: list[int] = []
    number = 0
    for line in diff.splitlines():
        start = _HUNK.match(line)
        if start is not None:
            number = int(start[1])
        elif number:
            if line.startswith("-"):
                found.append(number)
            number += line[:1] in ("-", " ", "")
    return found


def name_of(call: AnyCall, expected: CallOutcome) -> str:
    """Return the name of the test, from the function and the values it is called with."""
    words = [_word(name, value) for name, value in call.named_values]
    words = [word for word in words if word][:3]
    if expected.kind is OutcomeKind.RAISES:
        words.append("raises")
    name = "_".join([call.subject, *words] if call.subject else words)
    return "test_" + re.sub(r"\W+", "_", name)[:60].strip("_").lower()


def _truth(expression: str, *, is_true: bool) -> str:
    return f"assert {expression}" if is_true else f"assert not {_in_parentheses(expression)}"


def _assertion(expression: str, expected: CallOutcome, changed: CallOutcome) -> list[str]:
    is_other = changed.kind is OutcomeKind.VALUE and bool(changed.value) is not expected.value
    if isinstance(expected.value, bool) and (changed.kind is OutcomeKind.RAISES or is_other):
        return [_truth(expression, is_true=expected.value)]
    operator = "is" if isinstance(expected.value, bool | None) else "=="
    if expected.kind is OutcomeKind.ITEMS:
        expression = f"list({expression})"
    value = source_of(expected.value)
    line = f"assert {_in_parentheses(expression)} {operator} {value}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"result = {expression}", f"assert result {operator} {value}"]


def _in_parentheses(expression: str, *, tightly: bool = False) -> str:
    """Return an expression in parentheses if a comparison with it needs them; tightly: or an attribute of it."""
    node = ast.parse(expression, mode="eval").body
    loose = isinstance(node, ast.Compare | ast.BoolOp | ast.IfExp | ast.Lambda) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )
    return (
        f"({expression})"
        if loose or (tightly and isinstance(node, ast.BinOp | ast.UnaryOp | ast.Await))
        else expression
    )


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
