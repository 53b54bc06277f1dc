"""Read what the class of a method says about `self`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from harness.solvers.search.donors import SIGNATURE, is_target
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, walk

_PLAIN_CALL = re.compile(rb"self(\.\w+)+")
_MAX_ATTRIBUTES, _MAX_METHODS = 10, 24


@dataclass(frozen=True, slots=True)
class OwnClass:
    """The class of a method."""

    attributes: tuple[bytes, ...]
    """The first attributes of `self` that it uses, without its methods."""
    lost: tuple[bytes, ...]
    """The first attributes of `self` that it uses, and that neither it nor a base class may set."""
    known: tuple[bytes, ...]
    """The attributes that it sets, and the names of its body."""
    calls: tuple[bytes, ...]
    """What it calls on `self` and on its attributes, such as `self.items.append`."""
    has_bases: bool
    """Whether it inherits from another class than `object`."""


def own_class(source: ParsedSource, scope: Scope, others: Sequence[Scope]) -> OwnClass | None:
    """Return the class of a method that has `self`. others: all scopes of the file."""
    name = scope.qualname.rpartition(".")[0]
    if not name or b"self" not in source.text(scope.node)[:SIGNATURE]:
        return None
    for other in others:
        if other.kind == "class" and other.qualname == name and other.start <= scope.start <= other.end:
            return _read(source, other)
    return None


@functools.lru_cache(maxsize=64)
def _read(source: ParsedSource, own: Scope) -> OwnClass:
    used: dict[bytes, None] = {}
    calls: dict[bytes, None] = {}
    known: set[bytes] = set()
    for node, attribute in _attributes_of_self(source, own.node):
        used[attribute] = None
        if is_target(node):
            known.add(attribute)
    for node in walk(own.node):
        called = node.child_by_field_name("function") if node.type == "call" else None
        if called is not None and _PLAIN_CALL.fullmatch(source.text(called)):
            calls[source.text(called)] = None
    methods, names = _names_of_body(source, own.node)
    bases = own.node.child_by_field_name("superclasses")
    has_bases = bases is not None and any(source.text(base) != b"object" for base in bases.named_children)
    lost = [name for name in used if name not in known | methods | names]
    return OwnClass(
        tuple(name for name in used if name not in methods)[:_MAX_ATTRIBUTES],
        tuple(lost[:_MAX_ATTRIBUTES]),
        tuple(sorted(known | methods | names)),
        tuple(calls)[:_MAX_METHODS],
        has_bases,
    )


def _attributes_of_self(source: ParsedSource, root: Node) -> Iterator[tuple[Node, bytes]]:
    for node in walk(root):
        target, name = (node.child_by_field_name(field) for field in ("object", "attribute"))
        if node.type == "attribute" and target is not None and name is not None and source.text(target) == b"self":
            yield node, source.text(name)


def unknown_nodes(source: ParsedSource, scope: Scope, own: OwnClass) -> Iterator[Node]:
    """Yield the attributes of `self` in a method that its class does not know."""
    for node, attribute in _attributes_of_self(source, scope.node):
        if attribute not in own.known:
            yield node


def _names_of_body(source: ParsedSource, node: Node) -> tuple[set[bytes], set[bytes]]:
    """Return the names of the functions and classes of a class body, and all other names in it."""
    methods, names = set(), set()
    block = node.child_by_field_name("body")
    for child in block.named_children if block is not None else ():
        target = child.child_by_field_name("definition") if child.type == "decorated_definition" else child
        name = target.child_by_field_name("name") if target is not None else None
        if name is not None:
            methods.add(source.text(name))
        else:
            names |= {source.text(n) for n in walk(child) if n.type == "identifier"}
    return methods, names
