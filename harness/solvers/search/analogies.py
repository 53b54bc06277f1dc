"""Generate repairs by analogy: code from elsewhere in the file, with the names of the repaired function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from harness.solvers.search.donors import (
    BUILT_IN,
    MAX_DONORS,
    RepairEdits,
    body_of,
    forwarded_arguments,
    locals_of,
    module_names,
    names_in,
    nearby_functions,
    nodes_of,
    ordered_parameters,
    parameters,
    replace_node,
)
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, indentation, walk

_MAX_METHODS, _MAX_BYTES = 8, 120
_USUAL_METHODS = (b"strip", b"lower", b"copy", b"items", b"values", b"keys", b"decode", b"encode", b"read")
_WITH_OPERANDS = (
    "argument_list",
    "binary_operator",
    "comparison_operator",
    "list",
    "return_statement",
    "tuple",
)
_WRAPPED = ("identifier", "attribute", "call", "subscript")
_VALUES = ("identifier", "attribute", "call", "subscript", "string", "none", "integer", "dictionary", "list", "tuple")


def is_hollow(source: ParsedSource, scope: Scope) -> bool:
    """Return whether a function does next to nothing: a bare `pass`, `return`, `yield`, or a constant."""
    body = body_of(source, scope)
    if len(body) != 1 or body[0].type not in ("pass_statement", "return_statement", "expression_statement"):
        return False
    inner = body[0].named_children
    return not inner or inner[0].type in ("none", "ellipsis", "yield", "identifier", "true", "false", "integer")


def empty_returns(source: ParsedSource, scope: Scope) -> list[Node]:
    """Return the statements that return nothing; of a hollow function, the only statement, whatever it returns."""
    if is_hollow(source, scope):
        return body_of(source, scope)
    found = [n for n in walk(scope.node) if n.type == "return_statement"]
    return [n for n in found if not n.named_children or n.named_children[0].type == "none"]


def delegates(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield, for a hollow function, calls of the same name on a module, the parent class or an attribute."""
    if not is_hollow(source, scope):
        return
    (statement,) = body_of(source, scope)
    own = scope.qualname.rpartition(".")[2].encode()
    arguments = b", ".join(forwarded_arguments(source, scope))
    objects = dict.fromkeys([b"super()"] if b"." in scope.qualname.encode() else [])
    usable = module_names(source) | parameters(source, scope) | {b"self", b"cls"}
    for node in nodes_of(source):
        if node.type == "attribute" and node.parent is not None and node.parent.type == "call":
            receiver = node.child_by_field_name("object")
            if (
                receiver is not None
                and receiver.type in ("identifier", "attribute")
                and names_in(source, receiver) <= usable
            ):
                objects[source.text(receiver)] = None
    for text in list(objects)[:MAX_DONORS]:
        call = b"%s.%s(%s)" % (text, own, arguments)
        yield "delegate", 0.6, replace_node(statement, b"return " + call)
        yield "delegate", 0.2, replace_node(statement, call)


def borrowed_values(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield, for a function that returns nothing, expressions of nearby functions, with up to one name replaced."""
    targets = empty_returns(source, scope)
    if not targets:
        return
    usable = names_in(source, scope.node) | module_names(source) | parameters(source, scope)
    texts: dict[bytes, None] = {}
    for other in nearby_functions(scope, others):
        for node in walk(other.node):
            if node.type not in ("call", "list_comprehension", "generator_expression", "binary_operator"):
                continue
            text = source.text(node)
            if b"\n" not in text and len(text) <= _MAX_BYTES:
                texts |= dict.fromkeys(_in_own_names(source, node, usable, locals_of(source, scope)))
    called = _built_in_calls(source)
    for target in targets:
        for name in sorted(parameters(source, scope)):
            for inner in [b"", *called]:
                for outer in called:
                    text = b"%s(%s)" % (inner, name) if inner else name
                    yield "nested-call", 0.3, replace_node(target, b"return %s(%s)" % (outer, text))
        for text in list(texts)[: 2 * MAX_DONORS]:
            yield "borrowed-value", 0.4, replace_node(target, b"return " + text)


def _built_in_calls(source: ParsedSource) -> list[bytes]:
    """Return the built-in functions that a file calls most often."""
    counted: Counter[bytes] = Counter()
    for node in nodes_of(source):
        called = node.child_by_field_name("function") if node.type == "call" else None
        if called is not None and source.text(called) in BUILT_IN:
            counted[source.text(called)] += 1
    return sorted(counted, key=lambda name: (-counted[name], name))[:_MAX_METHODS]


def _in_own_names(source: ParsedSource, node: Node, usable: frozenset[bytes], own: frozenset[bytes]) -> Iterator[bytes]:
    names, text = names_in(source, node), source.text(node)
    foreign = names - usable - {b"self", b"cls"}
    if not foreign:
        yield text
    if len(foreign) == 1:
        for name in sorted(own):
            yield renamed(text, next(iter(foreign)), name)


def renamed(text: bytes, old: bytes, new: bytes) -> bytes:
    """Return code with a name replaced by another one, as a whole word."""
    return re.sub(rb"(?<!\w)%s(?!\w)" % re.escape(old), lambda _: new, text)


def further_calls(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield calls of the file's argumentless methods on a value, and `attribute or value` for a value."""
    methods: dict[bytes, int] = {}
    attributes: dict[bytes, None] = {}
    usable = names_in(source, scope.node) | module_names(source)
    for node in nodes_of(source):
        if node.type == "call" and source.text(node).endswith(b"()"):
            called = node.child_by_field_name("function")
            name = called.child_by_field_name("attribute") if called is not None else None
            if name is not None:
                methods[source.text(name)] = methods.get(source.text(name), 0) + 1
        if node.type == "attribute" and names_in(source, node) <= usable and source.text(node).count(b".") == 1:
            attributes[source.text(node)] = None
    common_methods = dict.fromkeys((*sorted(methods, key=lambda m: (-methods[m], m))[:_MAX_METHODS], *_USUAL_METHODS))
    used_names = {source.text(n) for n in walk(scope.node) if n.type == "identifier"}
    for node in result_values(scope.node):
        text = source.text(node)
        if node.type in ("call", "identifier", "attribute", "subscript"):
            for method in common_methods:
                yield "further-call", 0.3, replace_node(node, b"%s.%s()" % (text, method))
        for attribute in attributes:
            if attribute.partition(b".")[0] in used_names and attribute != text and node.type != "call":
                yield "or-else", 0.3, replace_node(node, b"%s or %s" % (attribute, text))


def wrapped_values(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield values as the argument of the functions that the file most often calls with one argument."""
    usable = names_in(source, scope.node) | module_names(source)
    counted: Counter[bytes] = Counter()
    for node in nodes_of(source):
        if node.type != "call":
            continue
        called, arguments = (node.child_by_field_name(field) for field in ("function", "arguments"))
        if called is None or arguments is None or arguments.named_child_count != 1:
            continue
        if arguments.named_children[0].type not in ("keyword_argument", "list_splat", "dictionary_splat"):
            if called.type in ("identifier", "attribute") and names_in(source, called) <= usable:
                counted[source.text(called)] += 1
    functions = sorted(counted, key=lambda name: (-counted[name], name))[:_MAX_METHODS]
    for node in walk(scope.node):
        parent = node.parent
        if node.type not in _WRAPPED or parent is None or not is_operand(node):
            continue
        call = parent.parent if parent.type == "argument_list" else None
        around = call.child_by_field_name("function") if call is not None else None
        for function in functions:
            if around is None or source.text(around) != function:
                yield "wrap", 0.3, replace_node(node, b"%s(%s)" % (function, source.text(node)))


def is_operand(node: Node) -> bool:
    """Return whether a node is a value: an operand, an argument, an element, what is returned or assigned."""
    parent = node.parent
    if parent is None:
        return False
    if parent.type in ("assignment", "keyword_argument", "for_statement", "for_in_clause"):
        return parent.child_by_field_name("right" if parent.type != "keyword_argument" else "value") == node
    return parent.type in _WITH_OPERANDS


def result_values(root: Node) -> Iterator[Node]:
    """Yield the expressions that are returned, assigned, or collected by a comprehension."""
    for node in walk(root):
        inner = node.named_children[-1] if node.named_children else None
        if node.type in ("list_comprehension", "generator_expression", "set_comprehension"):
            inner = node.child_by_field_name("body")
        elif node.type not in ("return_statement", "assignment"):
            continue
        if inner is not None and inner.type in _VALUES:
            yield inner


def other_bodies(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield, for a hollow function, the body of another one: unchanged, and with its names replaced by this one's."""
    if not is_hollow(source, scope):
        return
    own = body_of(source, scope)
    inner = indentation(source, own[0])
    own_parameters = ordered_parameters(source, scope)
    usable = names_in(source, scope.node) | module_names(source) | parameters(source, scope) | {b"self", b"cls"}
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
        other_parameters = ordered_parameters(source, other)
        variants = [text] if parameters(source, other) <= usable else []
        if len(other_parameters) == len(own_parameters):
            for old, new in zip(other_parameters, own_parameters, strict=True):
                text = renamed(text, old, new) if old != new else text
            variants.append(text)
        called = other.qualname.rpartition(".")[2]
        variants += [renamed(v, called.encode(), name.encode()) for v in variants]
        for variant in dict.fromkeys(variants):
            yield "other-body", 0.3 + 0.6 * _similarity(name, called), replace_node(own[0], variant)


def _similarity(one: str, other: str) -> float:
    first, second = (set(q.strip("_").split("_")) for q in (one, other))
    return len(first & second) / max(1, len(first | second))
