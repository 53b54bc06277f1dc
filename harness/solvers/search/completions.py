"""Generate repairs that complete what is unfinished.

A `super()` that calls nothing, an attribute that its class reads and never sets, a special method without a body, a
parameter that may be None and is used as it is: each tells what is missing, or nearly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from harness.solvers.search.analogies import is_hollow, result_values
from harness.solvers.search.donors import (
    MAX_DONORS,
    SIGNATURE,
    RepairEdits,
    body_of,
    forwarded_arguments,
    ordered_parameters,
    parameters,
    replace_node,
    unused_names,
)
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
_MAX_ATTRIBUTES, _MAX_METHODS = 10, 24
_BINDING = ("assignment", "augmented_assignment", "for_statement")
_VALUE_PARENTS = ("argument_list", "assignment", "keyword_argument", "return_statement", "for_statement")


def completions(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> RepairEdits:
    """Yield the repairs of a function that complete it. others: all scopes of the file."""
    yield from _parent_calls(source, scope)
    yield from _fallbacks(source, scope)
    own = _class_of(source, scope, others)
    if own is not None:
        yield from _lost_assignments(source, scope, own)
        yield from _unknown_attributes(source, scope, own)
        if is_hollow(source, scope):
            yield from _special_methods(source, scope, own)
            yield from _calls_of_the_class(source, scope, own)


def own_attributes(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> list[bytes]:
    """Return the attributes of `self` that the class of a method uses; none for another function."""
    own = _class_of(source, scope, others)
    return [*_attributes(source, own)] if own is not None else []


def _class_of(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> Scope | None:
    """Return the class of a method that has `self`."""
    name = scope.qualname.rpartition(".")[0]
    if not name or b"self" not in source.text(scope.node)[:SIGNATURE]:
        return None
    return next((s for s in others if s.kind == "class" and s.qualname == name), None)


def _parent_calls(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield calls of the parent's method for a `super()` that is used for nothing."""
    own = scope.qualname.rpartition(".")[2].encode()
    arguments = forwarded_arguments(source, scope)
    for node in walk(scope.node):
        if node.type != "call" or source.text(node) != b"super()" or node.parent is None:
            continue
        if node.parent.type in ("expression_statement", "return_statement", "assignment"):
            yield "parent-call", 2.0, replace_node(node, b"super().%s(%s)" % (own, b", ".join(arguments)))
            for some in dict.fromkeys((b"", *arguments)):
                yield "parent-call", 1.0, replace_node(node, b"super().%s(%s)" % (own, some))


def _fallbacks(source: ParsedSource, scope: Scope) -> RepairEdits:
    """Yield `name or default` for parameters that may be None, and `name or value` for names that nothing uses."""
    optional = _optional_parameters(source, scope)
    for node in walk(scope.node):
        if node.type == "identifier" and source.text(node) in optional and _is_value(node):
            for text in (b"{}", b"[]", b"()", b'""'):
                yield "or-empty", 0.4, replace_node(node, b"%s or %s" % (source.text(node), text))
    unused = sorted(unused_names(source, scope))
    for node in result_values(scope.node) if unused else ():
        for name in unused:
            yield "name-or-value", 0.4, replace_node(node, b"%s or %s" % (name, source.text(node)))


def _optional_parameters(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    node = scope.node.child_by_field_name("parameters")
    names = set()
    for child in node.named_children if node is not None else ():
        name, value = (child.child_by_field_name(field) for field in ("name", "value"))
        if name is not None and value is not None and value.type == "none":
            names.add(source.text(name))
    return frozenset(names)


def _is_value(node: Node) -> bool:
    """Return whether a name is a value that an expression can replace, without parentheses around it."""
    parent = node.parent
    if parent is None or parent.type not in _VALUE_PARENTS:
        return False
    return all(parent.child_by_field_name(field) != node for field in ("left", "name"))


def _lost_assignments(source: ParsedSource, scope: Scope, own: Scope) -> RepairEdits:
    """Yield assignments to the attributes that the class reads and never sets: of parameters, or of something empty."""
    known = _known_attributes(source, own)
    lost = [name for name in _attributes(source, own) if name not in known][:_MAX_ATTRIBUTES]
    named = [
        b"self.%s = %s" % (attribute, name)
        for name in ordered_parameters(source, scope)
        for attribute in lost
        if attribute.lstrip(b"_") == name
    ]
    texts = [(b"\n".join(named), 1.5)] if named else []
    texts += [(text, 1.0) for text in named]
    for attribute in lost:
        values = [*sorted(parameters(source, scope)), *(_EMPTY if scope.qualname.endswith("__init__") else ())]
        texts += [(b"self.%s = %s" % (attribute, value), 0.3) for value in values]
    for text, weight in texts:
        for edit in _insertions(source, scope, text):
            yield "lost-assignment", weight, (edit,)


def _attributes(source: ParsedSource, own: Scope) -> dict[bytes, None]:
    """Return the attributes of `self` that a class uses, in order."""
    return dict.fromkeys(source.text(node)[len(b"self.") :] for node in _nodes_of_self(source, own))


def _nodes_of_self(source: ParsedSource, scope: Scope) -> Iterator[Node]:
    for node in walk(scope.node):
        target = node.child_by_field_name("object") if node.type == "attribute" else None
        if target is not None and source.text(target) == b"self":
            yield node


def _known_attributes(source: ParsedSource, own: Scope) -> frozenset[bytes]:
    """Return the attributes that a class sets, and the names of its body: methods, properties, class variables."""
    names = {source.text(n)[len(b"self.") :] for n in _nodes_of_self(source, own) if _is_set(n)}
    block = own.node.child_by_field_name("body")
    for child in block.named_children if block is not None else ():
        target = child.child_by_field_name("definition") if child.type == "decorated_definition" else child
        name = target.child_by_field_name("name") if target is not None else None
        if name is None and child.type == "expression_statement" and child.named_children:
            name = child.named_children[0].child_by_field_name("left")
        if name is not None:
            names.add(source.text(name))
    return frozenset(names)


def _is_set(node: Node) -> bool:
    while node.parent is not None and node.parent.type in ("pattern_list", "tuple_pattern"):
        node = node.parent
    parent = node.parent
    return parent is not None and parent.type in _BINDING and parent.child_by_field_name("left") == node


def _insertions(source: ParsedSource, scope: Scope, text: bytes) -> Iterator[Edit]:
    """Yield the places for a statement in a function's body: each of its ends, or in place of a lone `pass`."""
    body = body_of(source, scope)
    if not body or source.data[source.line_start(body[0].start_byte) : body[0].start_byte].strip():
        return
    inner = indentation(source, body[0])
    lines = (b"\n" + inner).join(text.split(b"\n"))
    if len(body) == 1 and is_hollow(source, scope):
        yield Edit(body[0].start_byte, body[0].end_byte, lines)
        return
    yield Edit(body[-1].end_byte, body[-1].end_byte, b"\n" + inner + lines)
    yield Edit(body[0].start_byte, body[0].start_byte, lines + b"\n" + inner)


def _unknown_attributes(source: ParsedSource, scope: Scope, own: Scope) -> RepairEdits:
    """Yield the attributes that the class sets, for one that it does not."""
    known = _known_attributes(source, own)
    for node in _nodes_of_self(source, scope):
        if source.text(node)[len(b"self.") :] not in known:
            for name in sorted(known)[:MAX_DONORS]:
                yield "known-attribute", 0.6, replace_node(node, b"self." + name)


def _special_methods(source: ParsedSource, scope: Scope, own: Scope) -> RepairEdits:
    """Yield the usual bodies of special methods, for each attribute of the object."""
    name = scope.qualname.rpartition(".")[2]
    value, action = _SPECIAL_METHODS.get(name), _SPECIAL_ACTIONS.get(name)
    template = b"return " + value if value is not None else action
    if template is None:
        return
    for number, parameter in enumerate(ordered_parameters(source, scope)):
        template = template.replace(b"{%d}" % number, parameter)
    if b"{" in template:
        return
    for attribute in [*_attributes(source, own)][:_MAX_ATTRIBUTES]:
        for edit in _insertions(source, scope, template.replace(b"%s", b"self." + attribute)):
            yield "special-method", 1.0, (edit,)


def _calls_of_the_class(source: ParsedSource, scope: Scope, own: Scope) -> RepairEdits:
    """Yield calls of the methods that the class calls on its attributes, with the parameters of a hollow method."""
    methods: dict[bytes, None] = {}
    for node in walk(own.node):
        called = node.child_by_field_name("function") if node.type == "call" else None
        if called is not None and source.text(called).startswith(b"self.") and b"(" not in source.text(called):
            methods[source.text(called)] = None
    arguments = b", ".join(forwarded_arguments(source, scope))
    for method in [*methods][:_MAX_METHODS]:
        if method != b"self." + scope.qualname.rpartition(".")[2].encode():
            for text in (b"return %s(%s)" % (method, arguments), b"%s(%s)" % (method, arguments)):
                for edit in _insertions(source, scope, text):
                    yield "class-call", 0.4, (edit,)
