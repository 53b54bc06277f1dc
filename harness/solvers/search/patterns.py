"""Repairs of a function that undo what our operators and developers' mistakes do, each with how likely it is.

The operators of `mutation` come first: most are their own inverse. The others put something in: a negation, a part of
a condition, an argument, a value that is returned, a name, a statement from elsewhere in the file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tree_sitter import Node

from harness.solvers.search.analogies import bodies, borrowed_values, delegates, further_calls
from harness.solvers.search.donors import (
    MOST_DONORS,
    Found,
    condition_donors,
    fitting,
    idle_names,
    known_everywhere,
    names_in,
    near,
    parameters,
    put,
)
from harness.solvers.search.insertions import insertions
from harness.solvers.search.values import defaults, literals, lost_values, returns, values
from pytest_ssr.injectors.mutation import changes_of
from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope, walk

_COMPARISONS = (b"==", b"!=", b"<", b"<=", b">", b">=", b"is", b"is not", b"in", b"not in")
_ARITHMETIC = (b"+", b"-", b"*", b"/", b"//", b"%", b"**", b"&", b"|", b"^", b"<<", b">>")
_CONDITIONS = ("if_statement", "elif_clause", "while_statement", "conditional_expression")
_KEYWORDS = (b"key", b"default", b"encoding", b"errors", b"reverse", b"start", b"sep", b"initial")
_CHANCE = 0
_SHARING = 1.5
_OUTSIDE = 0.1
"""How likely a fault is outside of functions, against one in a function; such a repair takes long to try, too."""
_OF_IDLE = 8.0
"""How much likelier a repair is that uses a name which nothing uses."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One way to change a function."""

    path: str
    pattern: str
    """Its kind."""
    weight: float
    """How likely it is, compared with others at the same place."""
    edits: tuple[Edit, ...]
    first: int
    """1-based first line it changes."""
    last: int
    """1-based last line."""
    function: tuple[int, int]
    """1-based first and last line of the function."""


def repairs_of(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> list[Repair]:
    """Return the repairs of one scope; others: all scopes of the file, to take from.

    A kind's weight is shared out among its repairs, and more: where a hundred statements could be put in, each is less
    likely than the one way to turn a comparison round. (Of 126 repairs that undo changes in functions of click,
    itsdangerous, sqlparse and toolz, draws find 57 within the function's first ten candidates so, and 13 without.)
    """
    found = list(_found(source, scope, others))
    alike = Counter(r.pattern for r in found)
    idle = [re.compile(rb"(?<![\w.])%s(?!\w)" % re.escape(name)) for name in idle_names(source, scope)]
    shared = [r.weight / alike[r.pattern] ** _SHARING * (_OF_IDLE if _uses(r, idle) else 1.0) for r in found]
    # A function is as likely as its length says, not as there are ways to change it.
    whole = sum(shared) / math.sqrt(scope.node.end_point.row - scope.node.start_point.row + 1)
    share = 1.0 if scope.kind == "function" else _OUTSIDE
    return [replace(r, weight=share * weight / whole) for r, weight in zip(found, shared, strict=True)]


def _uses(repair: Repair, names: Sequence[re.Pattern[bytes]]) -> bool:
    return any(name.search(edit.text) for name in names for edit in repair.edits)


def _found(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Iterator[Repair]:
    span = (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
    seen: set[tuple[tuple[int, int, bytes], ...]] = set()
    for pattern, weight, edits in _all(source, scope, others):
        key = tuple((e.start, e.end, e.text) for e in edits)
        if key in seen or all(source.data[e.start : e.end] == e.text for e in edits):
            continue
        seen.add(key)
        first = source.data.count(b"\n", 0, min(e.start for e in edits)) + 1
        last = source.data.count(b"\n", 0, max(e.end for e in edits)) + 1
        yield Repair(source.path, pattern, weight, edits, first, max(first, min(last, span[1])), span)


def _all(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    for operator, edits in changes_of(source, scope, Random(_CHANCE)):
        yield operator, 1.0, edits
    for node in walk(scope.node):
        yield from _signs(source, node)
        yield from _negations(source, node)
        yield from returns(source, node)
        yield from defaults(source, node)
        yield from _exceptions(source, node)
    if scope.kind == "function":
        yield from _names(source, scope)
        yield from values(source, scope)
        yield from lost_values(source, scope, others)
        yield from literals(source, scope)
        yield from _conditions(source, scope, others)
        yield from _arguments(source, scope)
        yield from insertions(source, scope, others)
        yield from bodies(source, scope, others)
        yield from delegates(source, scope)
        yield from borrowed_values(source, scope, others)
        yield from further_calls(source, scope)


def _signs(source: ParsedSource, node: Node) -> Found:
    table = {"comparison_operator": _COMPARISONS, "binary_operator": _ARITHMETIC}.get(node.type, ())
    if node.type == "augmented_assignment":
        table = tuple(sign + b"=" for sign in _ARITHMETIC)
    for sign in node.children if table else ():
        if not sign.is_named and source.text(sign) in table:
            for other in table:
                yield "other-operator", 0.5, put(sign, other)


def _negations(source: ParsedSource, node: Node) -> Found:
    parts: list[Node | None] = []
    if node.type in ("if_statement", "elif_clause", "while_statement"):
        parts = [node.child_by_field_name("condition")]
    elif node.type == "conditional_expression":
        parts = [node.named_children[1]] if len(node.named_children) == 3 else []
    elif node.type == "boolean_operator":
        parts = [node.child_by_field_name("left"), node.child_by_field_name("right")]
    elif node.type in ("return_statement", "assignment"):
        parts = [node.named_children[-1]] if node.named_children else []
    for part in parts:
        if part is not None and part.type in ("identifier", "attribute", "call", "comparison_operator", "subscript"):
            yield "negate", 0.6, put(part, b"not " + source.text(part))
    if node.type == "not_operator":
        inner = node.child_by_field_name("argument")
        if inner is not None and inner.type == "parenthesized_expression" and inner.named_children:
            yield "drop-not", 1.0, put(node, source.text(inner.named_children[0]))


def _exceptions(source: ParsedSource, node: Node) -> Found:
    if node.type not in ("except_clause", "raise_statement"):
        return
    for child in node.named_children:
        name = child
        if child.type == "call":
            name = child.child_by_field_name("function") or child
        elif child.type == "as_pattern" and child.named_children:
            name = child.named_children[0]
        if name.type == "identifier":
            for other in sorted(n for n in known_everywhere(source) if n.endswith((b"Error", b"Exception", b"Exit"))):
                yield "other-exception", 0.15, put(name, other)


def _names(source: ParsedSource, scope: Scope) -> Found:
    """Another name of the function in a name's place; another attribute that the function uses."""
    uses = [n for n in walk(scope.node) if n.type == "identifier" and n.parent is not None]
    attributes = [n for n in uses if n.parent is not None and _is_attribute(n)]
    plain = [n for n in uses if n not in attributes and not _is_bound(n)]
    local = sorted(names_in(source, scope.node) - known_everywhere(source))
    for node in plain:
        if source.text(node) in local:
            for other in local:
                yield "other-name", 0.4, put(node, other)
    known = sorted({source.text(n) for n in attributes})
    for node in attributes:
        for other in known:
            yield "other-attribute", 0.2, put(node, other)


def _is_attribute(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "attribute" and parent.child_by_field_name("attribute") == node


def _is_bound(node: Node) -> bool:
    """Tell whether a name is bound there: a parameter, a keyword, the name of a definition."""
    parent = node.parent
    return parent is None or parent.type in (
        "parameters",
        "default_parameter",
        "typed_parameter",
        "function_definition",
        "class_definition",
        "keyword_argument",
        "lambda_parameters",
    )


def _conditions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """A condition with a further part, or another condition of the file in its place."""
    donors = fitting(source, scope, [d for s in near(scope, others) for d in condition_donors(source, s)])
    for node in walk(scope.node):
        if node.type not in _CONDITIONS:
            continue
        field = "condition" if node.type != "conditional_expression" else ""
        condition = node.child_by_field_name(field) if field else node.named_children[1]
        if condition is None:
            continue
        text = source.text(condition)
        for donor in donors:
            home = 1.0 if donor.home == scope.start else 0.5
            if donor.text != text:
                yield "more-condition", 0.25 * home, put(condition, text + b" and " + donor.text)
                yield "more-condition", 0.25 * home, put(condition, text + b" or " + donor.text)
                yield "more-condition", 0.2 * home, put(condition, donor.text + b" and " + text)
                yield "other-condition", 0.2 * home, put(condition, donor.text)


def _arguments(source: ParsedSource, scope: Scope) -> Found:
    """Keywords that other calls of the same name in the file have."""
    seen: dict[bytes, dict[bytes, None]] = {}
    for node in walk(source.root):
        if node.type == "call" and (name := _called(source, node)):
            for argument in _given(node):
                if argument.type == "keyword_argument":
                    seen.setdefault(name, {})[source.text(argument)] = None
    every = dict.fromkeys((*(word.partition(b"=")[0] for words in seen.values() for word in words), *_KEYWORDS))
    usable, idle = names_in(source, scope.node) | known_everywhere(source), sorted(idle_names(source, scope))
    for node in walk(scope.node):
        name = _called(source, node) if node.type == "call" else b""
        if not name:
            continue
        given = [source.text(a) for a in _given(node)]
        arguments = node.child_by_field_name("arguments")
        if arguments is None or arguments.type != "argument_list":
            continue
        wanted = list(seen.get(name, ()))
        wanted += [n + b"=" + n for n in sorted(usable & parameters(source, scope))]
        wanted += idle
        wanted += [key + b"=" + n for n in idle for key in every]
        for extra in wanted[:MOST_DONORS]:
            key = extra.partition(b"=")[0]
            if not any(g.startswith(key + b"=") for g in given):
                text = b"(" + b", ".join([*given, extra]) + b")"
                yield "more-arguments", 0.25, put(arguments, text)


def _called(source: ParsedSource, call: Node) -> bytes:
    function = call.child_by_field_name("function")
    return source.text(function).rpartition(b".")[2] if function is not None else b""


def _given(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    return [a for a in arguments.named_children if a.type != "comment"] if arguments is not None else []
