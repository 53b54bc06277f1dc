"""Generate weighted repairs of a function that revert mutation operators and mistakes of developers.

The operators of `mutation` come first, because most are their own inverse. The other patterns add or replace something:
a negation, a part of a condition, an argument, a return value, a name, a statement from elsewhere in the file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tree_sitter import Node

from harness.solvers.search.analogies import (
    borrowed_values,
    delegates,
    further_calls,
    other_bodies,
    wrapped_values,
)
from harness.solvers.search.completions import completions
from harness.solvers.search.donors import (
    MAX_DONORS,
    RepairEdits,
    condition_donors,
    module_names,
    names_in,
    nearby_functions,
    nodes_of,
    parameters,
    replace_node,
    unused_names,
    usable_donors,
)
from harness.solvers.search.insertions import insertions
from harness.solvers.search.own_class import own_class
from harness.solvers.search.values import defaults, literals, lost_values, returns, values
from pytest_ssr.injectors.mutation import changes_of
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, indentation, walk

_COMPARISONS = (b"==", b"!=", b"<", b"<=", b">", b">=", b"is", b"is not", b"in", b"not in")
_ARITHMETIC = (b"+", b"-", b"*", b"/", b"//", b"%", b"**", b"&", b"|", b"^", b"<<", b">>")
_CONDITIONS = ("if_statement", "elif_clause", "while_statement", "conditional_expression")
_LOOSER_THAN_AND = ("boolean_operator", "conditional_expression", "lambda", "named_expression")
_KEYWORDS = (b"key", b"default", b"encoding", b"errors", b"reverse", b"start", b"sep", b"initial")
_SEED = 0
_SHARING_EXPONENT = 1.5
_MODULE_WEIGHT = 0.1
"""Likelihood of a fault outside of functions, relative to one in a function; such a repair also takes long to run."""
_UNUSED_NAME_FACTOR = 8.0
"""Factor on the weight of a repair that uses a name which the function does not use yet."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One way to change a function."""

    path: str
    pattern: str
    """The name of the pattern."""
    weight: float
    """Its likelihood, relative to other repairs of the function."""
    edits: tuple[Edit, ...]
    first: int
    """1-based first line that it changes."""
    last: int
    """1-based last line that it changes."""
    function: tuple[int, int]
    """1-based first and last line of the function."""


def repairs_of(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> list[Repair]:
    """Return the repairs of one scope. others: all scopes of the file, as sources of donor code.

    The weight of a pattern is divided among its repairs, more than proportionally: if a hundred statements can be
    inserted, each is less likely than the one way to reverse a comparison. (Of 126 repairs that revert changes in
    functions of click, itsdangerous, sqlparse and toolz, draws find 57 within the function's first ten candidates this
    way, and 13 without.)
    """
    repairs = list(_distinct_repairs(source, scope, others))
    counts = Counter(r.pattern for r in repairs)
    unused = [re.compile(rb"(?<![\w.])%s(?!\w)" % re.escape(name)) for name in unused_names(source, scope)]
    shared = [
        r.weight / counts[r.pattern] ** _SHARING_EXPONENT * (_UNUSED_NAME_FACTOR if _uses(r, unused) else 1.0)
        for r in repairs
    ]
    # The likelihood of a function depends on its length, not on the number of its repairs.
    total = sum(shared) / math.sqrt(scope.node.end_point.row - scope.node.start_point.row + 1)
    share = 1.0 if scope.kind == "function" else _MODULE_WEIGHT
    return [replace(r, weight=share * weight / total) for r, weight in zip(repairs, shared, strict=True)]


def _uses(repair: Repair, names: Sequence[re.Pattern[bytes]]) -> bool:
    return any(name.search(edit.text) for name in names for edit in repair.edits)


def _distinct_repairs(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Iterator[Repair]:
    span = (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
    seen: set[tuple[tuple[int, int, bytes], ...]] = set()
    for pattern, weight, edits in _all_edits(source, scope, others):
        key = tuple((e.start, e.end, e.text) for e in edits)
        if key in seen or all(source.data[e.start : e.end] == e.text for e in edits):
            continue
        seen.add(key)
        first, last = source.line(min(e.start for e in edits)), source.line(max(e.end for e in edits))
        yield Repair(source.path, pattern, weight, edits, first, max(first, min(last, span[1])), span)


def _all_edits(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    for operator, edits in changes_of(source, scope, Random(_SEED)):
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
        yield from _arguments(source, scope, others)
        yield from insertions(source, scope, others)
        yield from other_bodies(source, scope, others)
        yield from delegates(source, scope)
        yield from borrowed_values(source, scope, others)
        yield from further_calls(source, scope)
        yield from wrapped_values(source, scope)
        yield from completions(source, scope, others)


def _signs(source: ParsedSource, node: Node) -> RepairEdits:
    table = {"comparison_operator": _COMPARISONS, "binary_operator": _ARITHMETIC}.get(node.type, ())
    if node.type == "augmented_assignment":
        table = tuple(sign + b"=" for sign in _ARITHMETIC)
    for sign in node.children if table else ():
        if not sign.is_named and source.text(sign) in table:
            for other in table:
                yield "other-operator", 0.5, replace_node(sign, other)


def _negations(source: ParsedSource, node: Node) -> RepairEdits:
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
            yield "negate", 0.6, replace_node(part, b"not " + source.text(part))
    if node.type == "not_operator":
        inner = node.child_by_field_name("argument")
        if inner is not None and inner.type == "parenthesized_expression" and inner.named_children:
            yield "drop-not", 1.0, replace_node(node, source.text(inner.named_children[0]))


def _exceptions(source: ParsedSource, node: Node) -> RepairEdits:
    if node.type not in ("except_clause", "raise_statement"):
        return
    for child in node.named_children:
        name = child
        if child.type == "call":
            name = child.child_by_field_name("function") or child
        elif child.type == "as_pattern" and child.named_children:
            name = child.named_children[0]
        if name.type == "identifier":
            for other in sorted(n for n in module_names(source) if n.endswith((b"Error", b"Exception", b"Exit"))):
                yield "other-exception", 0.15, replace_node(name, other)


def _names(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield replacements of a name by another local name, and of an attribute by another one of the function."""
    uses = [n for n in walk(scope.node) if n.type == "identifier" and n.parent is not None]
    attributes = [n for n in uses if n.parent is not None and _is_attribute(n)]
    names = [n for n in uses if n not in attributes and not _is_bound(n)]
    local = sorted(names_in(source, scope.node) - module_names(source))
    for node in names:
        if source.text(node) in local:
            for other in local:
                yield "other-name", 0.4, replace_node(node, other)
    attribute_names = sorted({source.text(n) for n in attributes})
    for node in attributes:
        for other in attribute_names:
            yield "other-attribute", 0.2, replace_node(node, other)


def _is_attribute(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "attribute" and parent.child_by_field_name("attribute") == node


def _is_bound(node: Node) -> bool:
    """Return whether a node binds a name: a parameter, a keyword, the name of a definition."""
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


def _conditions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield conditions with an additional operand, or replaced by another condition of the file."""
    donors = usable_donors(
        source, scope, [d for s in nearby_functions(scope, others) for d in condition_donors(source, s)]
    )
    own = own_class(source, scope, others)
    names = [("name-in-condition", name) for name in sorted(parameters(source, scope))]
    names += [("attribute-in-condition", b"self." + name) for name in (own.attributes if own is not None else ())]
    for node in walk(scope.node):
        if node.type not in _CONDITIONS:
            continue
        field = "condition" if node.type != "conditional_expression" else ""
        condition = node.child_by_field_name(field) if field else node.named_children[1]
        if condition is None:
            continue
        text = source.text(condition)
        operand = b"(" + text + b")" if condition.type in _LOOSER_THAN_AND else text
        for donor in donors:
            home = 1.0 if donor.home == scope.start else 0.5
            if donor.text != text:
                yield "more-condition", 0.25 * home, replace_node(condition, operand + b" and " + donor.text)
                yield "more-condition", 0.25 * home, replace_node(condition, text + b" or " + donor.text)
                yield "more-condition", 0.2 * home, replace_node(condition, donor.text + b" and " + operand)
                yield "other-condition", 0.2 * home, replace_node(condition, donor.text)
        for pattern, name in names:
            for part in (name, b"not " + name, name + b" is not None"):
                yield pattern, 0.25, replace_node(condition, operand + b" and " + part)
                yield pattern, 0.15, replace_node(condition, part + b" and " + operand)
            for part in (name, b"not " + name, name + b" is None"):
                yield pattern, 0.15, replace_node(condition, text + b" or " + part)


def _arguments(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield calls with an additional argument.

    It is a keyword of other calls of the same name, a parameter, an unused name, or an attribute of the object.
    """
    seen: dict[bytes, dict[bytes, None]] = {}
    for node in nodes_of(source):
        if node.type == "call" and (name := _called(source, node)):
            for argument in _argument_nodes(node):
                if argument.type == "keyword_argument":
                    seen.setdefault(name, {})[source.text(argument)] = None
    every = dict.fromkeys(
        (*(keyword.partition(b"=")[0] for keywords in seen.values() for keyword in keywords), *_KEYWORDS)
    )
    usable, unused = names_in(source, scope.node) | module_names(source), sorted(unused_names(source, scope))
    own_parameters = sorted(usable & parameters(source, scope))
    own = own_class(source, scope, others)
    attributes = [n for n in (own.attributes if own is not None else ()) if n in every]
    for node in walk(scope.node):
        name = _called(source, node) if node.type == "call" else b""
        arguments = node.child_by_field_name("arguments")
        if not name or arguments is None or arguments.type != "argument_list":
            continue
        nodes = _argument_nodes(node)
        present = [source.text(a) for a in nodes]
        extras = list(seen.get(name, ()))
        extras += [n + b"=" + n for n in own_parameters]
        extras += unused
        extras += [n + b"=self." + n for n in attributes]
        extras += [key + b"=" + n for n in unused for key in every]
        for extra in extras[:MAX_DONORS]:
            key = extra.partition(b"=")[0]
            if not any(g.startswith(key + b"=") for g in present):
                yield "more-arguments", 0.25, (_added_argument(source, arguments, nodes, extra),)


def _added_argument(source: ParsedSource, arguments: Node, present: Sequence[Node], extra: bytes) -> Edit:
    """Return the edit that adds an argument as late as Python allows; on a line of its own if the others are.

    present: the arguments in the list.
    """
    if not present:
        return Edit(arguments.start_byte + 1, arguments.start_byte + 1, extra)
    later = ("dictionary_splat",) if b"=" in extra else ("dictionary_splat", "keyword_argument")
    following = next((a for a in present if a.type in later), None)
    place = following or present[-1]
    inner = indentation(source, place)
    between = b"\n" + inner if source.line_start(place.start_byte) + len(inner) == place.start_byte else b" "
    if following is not None:
        return Edit(place.start_byte, place.start_byte, extra + b"," + between)
    return Edit(place.end_byte, place.end_byte, b"," + between + extra)


def _called(source: ParsedSource, call: Node) -> bytes:
    function = call.child_by_field_name("function")
    return source.text(function).rpartition(b".")[2] if function is not None else b""


def _argument_nodes(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    return [a for a in arguments.named_children if a.type != "comment"] if arguments is not None else []
