"""Find the bindings and uses of a function's local names.

Good enough to distinguish a removal that leaves a name without a value from one that does not; errs on the strict side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.source.syntax_tree import ParsedSource

_FUNCTIONS = ("function_definition", "lambda")
_COMPREHENSIONS = ("list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression")
_SKIPPED = frozenset(("type", "comment", "string_content", "global_statement", "nonlocal_statement"))
_PATTERNS = frozenset(
    (
        "pattern_list",
        "tuple_pattern",
        "list_pattern",
        "list_splat_pattern",
        "dictionary_splat_pattern",
        "tuple",
        "list",
        "parenthesized_expression",
        "as_pattern_target",
    )
)


@dataclass(frozen=True, slots=True)
class LocalNames:
    """The local names of one function."""

    bound: tuple[tuple[int, bytes], ...]
    """Byte offset and name of each binding, sorted."""
    first_bound: dict[bytes, int]
    """Name to the byte offset of its first binding."""
    last_used: dict[bytes, int]
    """Name to the byte offset of its last use."""
    outer: frozenset[bytes]
    """Names that are declared global or nonlocal."""

    def needed_after(self, start: int, end: int) -> bool:
        """Return whether a name that gets its first value in the span is used after it."""
        for index in range(bisect_left(self.bound, (start, b"")), len(self.bound)):
            position, name = self.bound[index]
            if position >= end:
                return False
            if name not in self.outer and self.first_bound[name] >= start and self.last_used.get(name, -1) >= end:
                return True
        return False


def own_nodes(function: Node) -> Iterator[Node]:
    """Yield the nodes of a function's body in order, without those in nested functions, lambdas and classes."""
    body = function.child_by_field_name("body")
    stack = [body] if body is not None else []
    while stack:
        node = stack.pop()
        yield node
        if node.type not in (*_FUNCTIONS, "class_definition"):
            stack.extend(reversed(node.named_children))


def local_names(source: ParsedSource, function: Node) -> LocalNames:
    """Return the local names of a function; uses in nested functions count, bindings there do not."""
    marks: dict[int, bytes] = {}
    uses: list[tuple[int, bytes]] = []
    outer: set[bytes] = set()
    parameters = function.child_by_field_name("parameters")
    for node in _parameter_names(parameters) if parameters is not None else ():
        marks[node.start_byte] = source.text(node)
    body = function.child_by_field_name("body")
    stack: list[tuple[Node, frozenset[bytes]]] = [(body, frozenset())] if body is not None else []
    while stack:
        node, hidden = stack.pop()
        if node.type in ("global_statement", "nonlocal_statement"):
            outer.update(source.text(n) for n in node.named_children)
        inner = hidden | _own_names(source, node)
        for target in _bound_by(node):
            if source.text(target) not in inner:
                marks[target.start_byte] = source.text(target)
        if node.type == "identifier" and node.start_byte not in marks and source.text(node) not in hidden:
            uses.append((node.start_byte, source.text(node)))
        stack.extend((child, inner) for child in _evaluated(node))
    bound = tuple(sorted(marks.items()))
    first: dict[bytes, int] = {}
    for at, name in bound:
        first.setdefault(name, at)
    return LocalNames(bound, first, {name: at for at, name in sorted(uses)}, frozenset(outer))


def _evaluated(node: Node) -> list[Node]:
    """Return the children that can contain uses of names."""
    if node.type in _SKIPPED or node.type in ("import_statement", "import_from_statement"):
        return []
    skipped = {"attribute": "attribute", "keyword_argument": "name"}.get(node.type)
    name = node.child_by_field_name(skipped) if skipped else None
    return [c for c in node.named_children if c != name]


def _own_names(source: ParsedSource, node: Node) -> frozenset[bytes]:
    """Return the names that a nested function, lambda or comprehension binds in its own scope."""
    if node.type in _COMPREHENSIONS:
        clauses = [c.child_by_field_name("left") for c in node.named_children if c.type == "for_in_clause"]
        return frozenset(source.text(n) for c in clauses if c is not None for n in _targets(c))
    if node.type not in _FUNCTIONS:
        return frozenset()
    parameters = node.child_by_field_name("parameters")
    bound = {source.text(n) for n in _parameter_names(parameters)} if parameters is not None else set()
    shared: set[bytes] = set()
    if node.type == "function_definition":
        for inner in own_nodes(node):
            bound.update(source.text(n) for n in _bound_by(inner))
            if inner.type in ("global_statement", "nonlocal_statement"):
                shared.update(source.text(n) for n in inner.named_children)
    return frozenset(bound - shared)


def _parameter_names(parameters: Node) -> Iterator[Node]:
    for child in parameters.named_children:
        name = child.child_by_field_name("name") or child
        if name.type == "typed_parameter" and name.named_children:
            name = name.named_children[0]
        yield from _targets(name)


def _bound_by(node: Node) -> Iterator[Node]:
    """Yield the identifiers that a node binds in its function."""
    if node.type in ("assignment", "for_statement", "named_expression", "function_definition", "class_definition"):
        target = node.child_by_field_name("left") or node.child_by_field_name("name")
        if target is not None:
            yield from _targets(target)
    elif node.type == "as_pattern_target":
        yield from _targets(node)
    elif node.type in ("import_statement", "import_from_statement"):
        for name in node.children_by_field_name("name"):
            alias = name.child_by_field_name("alias")
            yield from _targets(alias if alias is not None else name.named_children[0])
    elif node.type in ("case_pattern", "splat_pattern", "as_pattern"):
        for child in node.named_children[-1:]:
            if child.type == "dotted_name" and child.named_child_count == 1:
                yield from child.named_children
            elif child.type == "identifier" and node.type != "case_pattern":
                yield child


def _targets(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "identifier":
            yield current
        elif current.type in _PATTERNS:
            stack.extend(current.named_children)
