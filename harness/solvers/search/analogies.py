"""Repairs by analogy: what the file does elsewhere, with the names of the place that is repaired."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from harness.solvers.search.donors import (
    BUILT_IN,
    MOST_DONORS,
    Found,
    body_of,
    known_everywhere,
    locals_of,
    names_in,
    near,
    ordered_parameters,
    parameters,
    put,
)
from pytest_ssr.injectors.python_source import ParsedSource, Scope, indentation, walk

_MOST_CALLED, _LONGEST = 8, 120
_USUAL_METHODS = (b"strip", b"lower", b"copy", b"items", b"values", b"keys", b"decode", b"encode", b"read")
_VALUES = ("identifier", "attribute", "call", "subscript", "string", "none", "integer")


def is_hollow(source: ParsedSource, scope: Scope) -> bool:
    """Tell whether a function does next to nothing: a bare `pass`, `return`, `yield`, or a constant."""
    body = body_of(source, scope)
    if len(body) != 1 or body[0].type not in ("pass_statement", "return_statement", "expression_statement"):
        return False
    inner = body[0].named_children
    return not inner or inner[0].type in ("none", "ellipsis", "yield", "identifier", "true", "false", "integer")


def delegates(source: ParsedSource, scope: Scope) -> Found:
    """For a hollow function: a call of what has its name elsewhere, on a module, the parent class, an attribute."""
    if not is_hollow(source, scope):
        return
    (statement,) = body_of(source, scope)
    own = scope.qualname.rpartition(".")[2].encode()
    given = b", ".join(ordered_parameters(source, scope))
    objects = dict.fromkeys([b"super()"] if b"." in scope.qualname.encode() else [])
    usable = known_everywhere(source) | parameters(source, scope) | {b"self", b"cls"}
    for node in walk(source.root):
        if node.type == "attribute" and node.parent is not None and node.parent.type == "call":
            above = node.child_by_field_name("object")
            if above is not None and above.type in ("identifier", "attribute") and names_in(source, above) <= usable:
                objects[source.text(above)] = None
    for holder in list(objects)[:MOST_DONORS]:
        call = b"%s.%s(%s)" % (holder, own, given)
        yield "delegate", 0.6, put(statement, b"return " + call)
        yield "delegate", 0.2, put(statement, call)


def borrowed_values(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """Where nothing is returned: a call that stands in a function nearby, with one of its names put otherwise."""
    places = [n for n in walk(scope.node) if n.type == "return_statement"]
    places = [n for n in places if not n.named_children or n.named_children[0].type == "none"]
    if not places:
        return
    usable = names_in(source, scope.node) | known_everywhere(source) | parameters(source, scope)
    texts: dict[bytes, None] = {}
    for other in near(scope, others):
        for node in walk(other.node):
            if node.type not in ("call", "list_comprehension", "generator_expression", "binary_operator"):
                continue
            text = source.text(node)
            if b"\n" not in text and len(text) <= _LONGEST:
                texts |= dict.fromkeys(_in_own_names(source, node, usable, locals_of(source, scope)))
    called = _built_in_calls(source)
    for place in places:
        for name in sorted(parameters(source, scope)):
            for inner in [b"", *called]:
                for outer in called:
                    text = b"%s(%s)" % (inner, name) if inner else name
                    yield "nested-call", 0.3, put(place, b"return %s(%s)" % (outer, text))
        for text in list(texts)[: 2 * MOST_DONORS]:
            yield "borrowed-value", 0.4, put(place, b"return " + text)


def _built_in_calls(source: ParsedSource) -> list[bytes]:
    """Return the built-in functions that a file calls most."""
    counted: Counter[bytes] = Counter()
    for node in walk(source.root):
        called = node.child_by_field_name("function") if node.type == "call" else None
        if called is not None and source.text(called) in BUILT_IN:
            counted[source.text(called)] += 1
    return sorted(counted, key=lambda name: (-counted[name], name))[:_MOST_CALLED]


def _in_own_names(source: ParsedSource, node: Node, usable: frozenset[bytes], own: frozenset[bytes]) -> Iterator[bytes]:
    names, text = names_in(source, node), source.text(node)
    foreign = names - usable - {b"self", b"cls"}
    if not foreign:
        yield text
    if len(foreign) == 1:
        for name in sorted(own):
            yield renamed(text, next(iter(foreign)), name)


def renamed(text: bytes, old: bytes, new: bytes) -> bytes:
    """Return code with a name put for another, as a whole word."""
    return re.sub(rb"(?<!\w)%s(?!\w)" % re.escape(old), lambda _: new, text)


def further_calls(source: ParsedSource, scope: Scope) -> Found:
    """A method that the file calls without arguments, called on a value; a value before `or`, which it had."""
    methods: dict[bytes, int] = {}
    attributes: dict[bytes, None] = {}
    usable = names_in(source, scope.node) | known_everywhere(source)
    for node in walk(source.root):
        if node.type == "call" and source.text(node).endswith(b"()"):
            called = node.child_by_field_name("function")
            name = called.child_by_field_name("attribute") if called is not None else None
            if name is not None:
                methods[source.text(name)] = methods.get(source.text(name), 0) + 1
        if node.type == "attribute" and names_in(source, node) <= usable and source.text(node).count(b".") == 1:
            attributes[source.text(node)] = None
    often = dict.fromkeys((*sorted(methods, key=lambda m: (-methods[m], m))[:_MOST_CALLED], *_USUAL_METHODS))
    known = {source.text(n) for n in walk(scope.node) if n.type == "identifier"}
    for node in _values(scope.node):
        text = source.text(node)
        if node.type in ("call", "identifier", "attribute", "subscript"):
            for method in often:
                yield "further-call", 0.3, put(node, b"%s.%s()" % (text, method))
        for attribute in attributes:
            if attribute.partition(b".")[0] in known and attribute != text and node.type != "call":
                yield "or-else", 0.3, put(node, b"%s or %s" % (attribute, text))


def _values(root: Node) -> Iterator[Node]:
    """Yield what is returned, assigned, or gathered in a comprehension."""
    for node in walk(root):
        inner = node.named_children[-1] if node.named_children else None
        if node.type in ("list_comprehension", "generator_expression", "set_comprehension"):
            inner = node.child_by_field_name("body")
        elif node.type not in ("return_statement", "assignment"):
            continue
        if inner is not None and inner.type in _VALUES:
            yield inner


def bodies(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Found:
    """For a hollow function, the body of another one: as it is, and with the other's names put as this one's."""
    if not is_hollow(source, scope):
        return
    own = body_of(source, scope)
    inner = indentation(source, own[0])
    mine = ordered_parameters(source, scope)
    usable = names_in(source, scope.node) | known_everywhere(source) | parameters(source, scope) | {b"self", b"cls"}
    name = scope.qualname.rpartition(".")[2]
    for other in others:
        body = body_of(source, other) if other.kind == "function" and other != scope else []
        if not body:
            continue
        start = source.line_start(body[0].start_byte)
        outer = indentation(source, body[0])
        lines = source.data[start : body[-1].end_byte].split(b"\n")
        moved = [inner + line[len(outer) :] if line.startswith(outer) else line for line in lines]
        text = b"\n".join(moved)[len(inner) :]
        theirs = ordered_parameters(source, other)
        variants = [text] if parameters(source, other) <= usable else []
        if len(theirs) == len(mine):
            for old, new in zip(theirs, mine, strict=True):
                text = renamed(text, old, new) if old != new else text
            variants.append(text)
        called = other.qualname.rpartition(".")[2]
        variants += [renamed(v, called.encode(), name.encode()) for v in variants]
        for variant in dict.fromkeys(variants):
            yield "other-body", 0.3 + 0.6 * _alike(name, called), put(own[0], variant)


def _alike(one: str, other: str) -> float:
    first, second = (set(q.strip("_").split("_")) for q in (one, other))
    return len(first & second) / max(1, len(first | second))
