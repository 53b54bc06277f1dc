"""Repairs of a function that undo what our operators and developers' mistakes do, each with how likely it is.

The operators of `mutation` come first: most are their own inverse. The others put something in: a negation, a part of
a condition, an argument, a value that is returned, a name, a statement from elsewhere in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tree_sitter import Node

from harness.solvers.search.donors import (
    Donor,
    body_of,
    condition_donors,
    known_everywhere,
    names_in,
    statement_donors,
)
from pytest_ssr.injectors.mutation import changes_of
from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope, indentation, statements, walk

Found = Iterator[tuple[str, float, tuple[Edit, ...]]]
_COMPARISONS = (b"==", b"!=", b"<", b"<=", b">", b">=", b"is", b"is not", b"in", b"not in")
_ARITHMETIC = (b"+", b"-", b"*", b"/", b"//", b"%", b"**", b"&", b"|", b"^", b"<<", b">>")
_DEFAULTS = (b"None", b"True", b"False", b"0", b"1", b'""', b"()")
_CONDITIONS = ("if_statement", "elif_clause", "while_statement", "conditional_expression")
_JOINED = (b"+", b"-", b"*", b"/", b"//", b"%", b"and", b"or")
_MOST_DONORS, _MOST_NAMES, _SIGNATURE = 60, 5, 200
_CHANCE = 0
_TURNED = {b" < ": b" > ", b" > ": b" < ", b" <= ": b" >= ", b" >= ": b" <= "}
_DIRECTION = re.compile(rb" (?:<|>|<=|>=) ")


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


def repairs_of(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Iterator[Repair]:
    """Yield the repairs of one scope; others: all scopes of the file, to take from."""
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
        yield from _returns(source, node)
        yield from _defaults(source, node)
        yield from _exceptions(source, node)
    if scope.kind == "function":
        yield from _names(source, scope)
        yield from _values(source, scope)
        yield from _conditions(source, scope, others)
        yield from _arguments(source, scope)
        yield from _insertions(source, scope, others)
        yield from _bodies(source, scope, others)


def _put(node: Node, text: bytes) -> tuple[Edit, ...]:
    return (Edit(node.start_byte, node.end_byte, text),)


def _signs(source: ParsedSource, node: Node) -> Found:
    table = {"comparison_operator": _COMPARISONS, "binary_operator": _ARITHMETIC}.get(node.type, ())
    if node.type == "augmented_assignment":
        table = tuple(sign + b"=" for sign in _ARITHMETIC)
    for sign in node.children if table else ():
        if not sign.is_named and source.text(sign) in table:
            for other in table:
                yield "other-operator", 0.5, _put(sign, other)


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
            yield "negate", 0.6, _put(part, b"not " + source.text(part))
    if node.type == "not_operator":
        inner = node.child_by_field_name("argument")
        if inner is not None and inner.type == "parenthesized_expression" and inner.named_children:
            yield "drop-not", 1.0, _put(node, source.text(inner.named_children[0]))


def _returns(source: ParsedSource, node: Node) -> Found:
    if node.type == "return_statement" and (not node.named_children or node.named_children[0].type == "none"):
        for text in (b"self", b"True", b"False", b"result", b"[]", b"{}"):
            yield "return-value", 0.3, _put(node, b"return " + text)
    if node.type == "expression_statement" and node.named_child_count == 1:
        inner = node.named_children[0]
        if inner.type in ("call", "await"):
            yield "return-call", 0.5, _put(node, b"return " + source.text(inner))
    if node.type == "call" and node.parent is not None and node.parent.type != "await":
        if b"async def" in source.data:
            yield "await", 0.3, _put(node, b"await " + source.text(node))


def _values(source: ParsedSource, scope: Scope) -> Found:
    """A small expression of the function's names, where nothing or next to nothing is returned."""
    names = sorted(_locals(source, scope))[:_MOST_NAMES]
    bare = [b"self"] if b"self" in source.text(scope.node)[:_SIGNATURE] else []
    for node in walk(scope.node):
        if node.type != "return_statement":
            continue
        value = node.named_children[0] if node.named_children else None
        if value is not None and value.type not in ("none", "identifier", "true", "false", "integer"):
            continue
        for one in [*names, *bare]:
            yield "return-value", 0.4, _put(node, b"return " + one)
        for one in names:
            for other in names:
                for sign in _JOINED if one != other else ():
                    yield "return-value", 0.1, _put(node, b"return %s %s %s" % (one, sign, other))
            for called in sorted(_functions_of(source))[:_MOST_NAMES]:
                yield "return-value", 0.05, _put(node, b"return %s(%s)" % (called, one))


def _locals(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    return (names_in(source, scope.node) - known_everywhere(source) | _parameters(source, scope)) - {b"self", b"cls"}


def _functions_of(source: ParsedSource) -> list[bytes]:
    found = []
    for node in source.root.named_children:
        target = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        name = target.child_by_field_name("name") if target is not None else None
        if name is not None and target is not None and target.type == "function_definition":
            found.append(source.text(name))
    return found


def _defaults(source: ParsedSource, node: Node) -> Found:
    if node.type in ("default_parameter", "typed_default_parameter", "keyword_argument"):
        value = node.child_by_field_name("value")
        for text in _DEFAULTS if value is not None else ():
            assert value is not None
            yield "other-default", 0.5, _put(value, text)


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
                yield "other-exception", 0.15, _put(name, other)


def _names(source: ParsedSource, scope: Scope) -> Found:
    """Another name of the function in a name's place; another attribute that the function uses."""
    uses = [n for n in walk(scope.node) if n.type == "identifier" and n.parent is not None]
    attributes = [n for n in uses if n.parent is not None and _is_attribute(n)]
    plain = [n for n in uses if n not in attributes and not _is_bound(n)]
    local = sorted(names_in(source, scope.node) - known_everywhere(source))
    for node in plain:
        if source.text(node) in local:
            for other in local:
                yield "other-name", 0.4, _put(node, other)
    known = sorted({source.text(n) for n in attributes})
    for node in attributes:
        for other in known:
            yield "other-attribute", 0.2, _put(node, other)


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
    donors = _fitting(source, scope, [d for s in _near(scope, others) for d in condition_donors(source, s)])
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
                yield "more-condition", 0.25 * home, _put(condition, text + b" and " + donor.text)
                yield "more-condition", 0.25 * home, _put(condition, text + b" or " + donor.text)
                yield "more-condition", 0.2 * home, _put(condition, donor.text + b" and " + text)
                yield "other-condition", 0.2 * home, _put(condition, donor.text)


def _arguments(source: ParsedSource, scope: Scope) -> Found:
    """Keywords that other calls of the same name in the file have."""
    seen: dict[bytes, dict[bytes, None]] = {}
    for node in walk(source.root):
        if node.type == "call" and (name := _called(source, node)):
            for argument in _given(node):
                if argument.type == "keyword_argument":
                    seen.setdefault(name, {})[source.text(argument)] = None
    usable = names_in(source, scope.node) | known_everywhere(source)
    for node in walk(scope.node):
        name = _called(source, node) if node.type == "call" else b""
        if not name:
            continue
        given = [source.text(a) for a in _given(node)]
        arguments = node.child_by_field_name("arguments")
        if arguments is None or arguments.type != "argument_list":
            continue
        wanted = list(seen.get(name, ()))
        wanted += [n + b"=" + n for n in sorted(usable & _parameters(source, scope))]
        for extra in wanted[:_MOST_DONORS]:
            key = extra.partition(b"=")[0]
            if not any(g.startswith(key + b"=") for g in given):
                text = b"(" + b", ".join([*given, extra]) + b")"
                yield "more-arguments", 0.25, _put(arguments, text)


def _called(source: ParsedSource, call: Node) -> bytes:
    function = call.child_by_field_name("function")
    return source.text(function).rpartition(b".")[2] if function is not None else b""


def _given(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    return [a for a in arguments.named_children if a.type != "comment"] if arguments is not None else []


def _parameters(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    parameters = scope.node.child_by_field_name("parameters")
    found = set()
    for child in parameters.named_children if parameters is not None else ():
        name = child.child_by_field_name("name") or (child.named_children[0] if child.named_children else child)
        found.add(source.text(name))
    return frozenset(found - {b"self", b"cls"})


def _insertions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """A statement of the file, or a guard on a parameter, before or after each statement."""
    donors = _fitting(source, scope, [d for s in _near(scope, others) for d in statement_donors(source, s)])
    texts = [(d.text, 0.3 if d.home == scope.start else 0.15) for d in donors]
    for name in sorted(_parameters(source, scope)):
        texts += [(b"if %s is None:\n    return None" % name, 0.1), (b"if not %s:\n    return %s" % (name, name), 0.1)]
        texts += [(b"self.%s = %s" % (name, name), 0.2)] if b"self" in source.text(scope.node)[:_SIGNATURE] else []
    texts += [(t, 0.2) for d in donors if d.home == scope.start for t in _mirrored(d, _locals(source, scope))]
    for block in (n for n in walk(scope.node) if n.type == "block"):
        inside = statements(block)
        if not inside or source.data[source.line_start(inside[0].start_byte) : inside[0].start_byte].strip():
            continue
        inner = indentation(source, inside[0])
        present = {source.text(s) for s in inside}
        for text, weight in texts:
            if text in present:
                continue
            lines = (b"\n" + inner).join(text.split(b"\n"))
            for node in inside:
                yield "insert-statement", weight, (Edit(node.start_byte, node.start_byte, lines + b"\n" + inner),)
            yield "insert-statement", weight, (Edit(inside[-1].end_byte, inside[-1].end_byte, b"\n" + inner + lines),)


def _mirrored(donor: Donor, names: frozenset[bytes]) -> Iterator[bytes]:
    """Yield an `if` of the function for another of its names and for the other direction: code is often symmetric."""
    if not donor.text.startswith(b"if "):
        return
    turned = _DIRECTION.sub(lambda m: _TURNED[m[0]], donor.text, count=1)
    for text in dict.fromkeys((donor.text, turned)):
        if text != donor.text:
            yield text
        for old in sorted(donor.names & names):
            for new in sorted(names - donor.names):
                yield re.sub(rb"(?<![\w.])%s(?!\w)" % re.escape(old), new, text)


def _bodies(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """For a function that does next to nothing, the body of another one."""
    own = body_of(source, scope)
    if len(own) != 1 or own[0].end_point.row - own[0].start_point.row > 1 or not own:
        return
    inner = indentation(source, own[0])
    usable = names_in(source, scope.node) | known_everywhere(source) | _parameters(source, scope) | {b"self", b"cls"}
    for other in others:
        body = body_of(source, other) if other.kind == "function" and other != scope else []
        if not body or not _parameters(source, other) <= usable:
            continue
        start = source.line_start(body[0].start_byte)
        outer = indentation(source, body[0])
        lines = source.data[start : body[-1].end_byte].split(b"\n")
        moved = [inner + line[len(outer) :] if line.startswith(outer) else line for line in lines]
        text = b"\n".join(moved)[len(inner) :]
        like = _alike(scope.qualname, other.qualname)
        yield "other-body", 0.3 + 0.6 * like, _put(own[0], text)


def _alike(one: str, other: str) -> float:
    first, second = (set(q.rpartition(".")[2].strip("_").split("_")) for q in (one, other))
    return len(first & second) / max(1, len(first | second))


def _near(scope: Scope, others: Sequence[Scope]) -> list[Scope]:
    """Return the functions to take from: the function itself, those of its class, the others by their distance."""
    own = scope.qualname.rpartition(".")[0]
    functions = [s for s in others if s.kind == "function"]
    return sorted(
        functions,
        key=lambda s: (s != scope, s.qualname.rpartition(".")[0] != own, abs(s.start - scope.start)),
    )[:12]


def _fitting(source: ParsedSource, scope: Scope, donors: Sequence[Donor]) -> list[Donor]:
    """Return the donors whose names a function knows, each text once."""
    usable = names_in(source, scope.node) | known_everywhere(source) | _parameters(source, scope)
    found: dict[bytes, Donor] = {}
    for donor in donors:
        if donor.names <= usable:
            found.setdefault(donor.text, donor)
    return list(found.values())[:_MOST_DONORS]
