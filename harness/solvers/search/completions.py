"""Generate repairs that complete what is unfinished.

A `super()` that calls nothing, an attribute that its class reads and never sets, a special method without a body, a
parameter that may be None and is used as it is: each tells what is missing, or nearly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.solvers.search.analogies import is_hollow, is_operand, result_values
from harness.solvers.search.donors import (
    MAX_DONORS,
    RepairEdits,
    body_of,
    forwarded_arguments,
    ordered_parameters,
    replace_node,
    unused_names,
)
from harness.solvers.search.own_class import OwnClass, own_class, unknown_nodes
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, indentation, walk

_SPECIAL_METHODS = {
    "__bool__": b"bool(%s)",
    "__call__": b"%s()",
    "__contains__": b"{0} in %s",
    "__float__": b"float(%s)",
    "__getattr__": b"getattr(%s, {0})",
    "__getitem__": b"%s[{0}]",
    "__hash__": b"hash(%s)",
    "__int__": b"int(%s)",
    "__iter__": b"iter(%s)",
    "__len__": b"len(%s)",
    "__next__": b"next(%s)",
    "__repr__": b"repr(%s)",
    "__reversed__": b"reversed(%s)",
    "__str__": b"str(%s)",
}
"""The value of a special method of an object that passes it on; {0} is its first parameter."""
_SPECIAL_ACTIONS = {
    "__delitem__": b"del %s[{0}]",
    "__enter__": b"%s.__enter__()\nreturn self",
    "__setitem__": b"%s[{0}] = {1}",
}
_EMPTY = (b"None", b"{}", b"[]", b"set()", b"0", b"False", b'""')


def completions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield the repairs of a function that complete it. others: all scopes of the file."""
    yield from _parent_calls(source, scope)
    yield from _fallbacks(source, scope)
    own = own_class(source, scope, others)
    if own is not None:
        yield from _lost_assignments(source, scope, own)
        yield from _known_attributes(source, scope, own)
        if is_hollow(source, scope):
            yield from _special_methods(source, scope, own)
            yield from _calls_of_the_class(source, scope, own)


def _parent_calls(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield calls of the parent's method for a `super()` whose methods are not used."""
    own = scope.qualname.rpartition(".")[2].encode()
    arguments = forwarded_arguments(source, scope)
    for node in walk(scope.node):
        if node.type != "call" or source.text(node) != b"super()" or node.parent is None:
            continue
        if node.parent.type not in ("attribute", "argument_list"):
            yield "parent-call", 2.0, replace_node(node, b"super().%s(%s)" % (own, b", ".join(arguments)))
            for some in dict.fromkeys((b"", *arguments)):
                yield "parent-call", 1.0, replace_node(node, b"super().%s(%s)" % (own, some))


def _fallbacks(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield `name or default` for parameters that may be None, and `name or value` for names that nothing uses."""
    optional = _optional_parameters(source, scope)
    for node in walk(scope.node):
        if node.type != "identifier" or source.text(node) not in optional or not is_operand(node):
            continue
        is_inner = node.parent is not None and node.parent.type in ("binary_operator", "comparison_operator")
        for empty in (b"{}", b"[]", b"()", b'""'):
            text = b"%s or %s" % (source.text(node), empty)
            yield "or-empty", 0.4, replace_node(node, b"(" + text + b")" if is_inner else text)
    unused = sorted(unused_names(source, scope))
    for node in result_values(scope.node) if unused else ():
        left = node.parent.child_by_field_name("left") if node.parent is not None else None
        for name in unused:
            if left is None or source.text(left) != name:
                yield "name-or-value", 0.4, replace_node(node, b"%s or %s" % (name, source.text(node)))


def _optional_parameters(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    node = scope.node.child_by_field_name("parameters")
    names = set()
    for child in node.named_children if node is not None else ():
        name, value = (child.child_by_field_name(field) for field in ("name", "value"))
        if name is not None and value is not None and value.type == "none":
            names.add(source.text(name))
    return frozenset(names)


def _lost_assignments(source: ParsedSource, scope: Scope, own: OwnClass) -> RepairEdits:
    """Yield assignments to the attributes that nothing sets: of parameters, and in `__init__` of something empty."""
    named = [
        b"self.%s = %s" % (attribute, name)
        for name in ordered_parameters(source, scope)
        for attribute in own.lost
        if attribute.lstrip(b"_") == name
    ]
    texts = [(b"\n".join(named), 1.5)] if named else []
    texts += [(text, 1.0) for text in named]
    # Attributes that a base class sets look lost.
    for attribute in own.lost if not own.has_bases else ():
        values = [*ordered_parameters(source, scope), *(_EMPTY if scope.qualname.endswith("__init__") else ())]
        texts += [(b"self.%s = %s" % (attribute, value), 0.3) for value in values]
    for text, weight in texts:
        for edit in _insertions(source, scope, text):
            yield "lost-assignment", weight, (edit,)


def _insertions(source: ParsedSource, scope: Scope, text: bytes) -> Iterator[Edit]:
    """Yield the places for a statement in a function's body: both ends, or in place of all that a hollow one has."""
    body = body_of(source, scope)
    if not body or source.data[source.line_start(body[0].start_byte) : body[0].start_byte].strip():
        return
    inner = indentation(source, body[0])
    lines = (b"\n" + inner).join(text.split(b"\n"))
    if is_hollow(source, scope):
        yield Edit(body[0].start_byte, body[-1].end_byte, lines)
        return
    before = [body[0], *(body[-1:] if body[-1].type in ("return_statement", "raise_statement") else ())]
    if body[-1] not in before:
        yield Edit(body[-1].end_byte, body[-1].end_byte, b"\n" + inner + lines)
    for node in before:
        yield Edit(node.start_byte, node.start_byte, lines + b"\n" + inner)


def _known_attributes(source: ParsedSource, scope: Scope, own: OwnClass) -> RepairEdits:
    """Yield the names that the class knows, for an attribute that it does not."""
    for node in unknown_nodes(source, scope, own) if not own.has_bases else ():
        for name in own.known[:MAX_DONORS]:
            yield "known-attribute", 0.6, replace_node(node, b"self." + name)


def _special_methods(source: ParsedSource, scope: Scope, own: OwnClass) -> RepairEdits:
    """Yield the usual bodies of special methods, which pass the call on to an attribute of the object."""
    name = scope.qualname.rpartition(".")[2]
    value, action = _SPECIAL_METHODS.get(name), _SPECIAL_ACTIONS.get(name)
    template = b"return " + value if value is not None else action
    if template is None:
        return
    for number, parameter in enumerate(ordered_parameters(source, scope)):
        template = template.replace(b"{%d}" % number, parameter)
    if b"{" in template:
        return
    for attribute in own.attributes:
        for edit in _insertions(source, scope, template.replace(b"%s", b"self." + attribute)):
            yield "special-method", 1.0, (edit,)


def _calls_of_the_class(source: ParsedSource, scope: Scope, own: OwnClass) -> RepairEdits:
    """Yield what the class calls on the object and on its attributes, with the parameters of a hollow method."""
    arguments = b", ".join(forwarded_arguments(source, scope))
    for method in own.calls:
        if method != b"self." + scope.qualname.rpartition(".")[2].encode():
            for text in (b"return %s(%s)" % (method, arguments), b"%s(%s)" % (method, arguments)):
                for edit in _insertions(source, scope, text):
                    yield "class-call", 0.4, (edit,)
