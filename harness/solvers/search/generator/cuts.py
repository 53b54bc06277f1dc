"""Find the pieces of a function that could be missing in it: what is cut out to train, and copied to repair."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from harness.solvers.search.generator.holes import Hole, HoleKind, body_statements, starts_line
from pytest_ssr.source.syntax_tree import DEFINITIONS, ParsedSource, Scope, indentation, walk


def cuts_of(source: ParsedSource, scope: Scope) -> Iterator[Hole]:
    """Yield the pieces of a function, or of the head of a class, as holes whose span is the piece."""
    if scope.kind == "class":
        bases = scope.node.child_by_field_name("superclasses")
        if bases is not None and bases.named_children:
            yield Hole(HoleKind.BASES, bases.start_byte, bases.end_byte)
            yield from _last_argument(bases)
    if scope.kind != "function":
        return
    for node in walk(scope.node):
        if node.type == "block":
            yield from _of_block(source, node)
        elif node.type in ("elif_clause", "else_clause") and node.parent is not None:
            before = node.prev_named_sibling
            if node.parent.type == "if_statement" and before is not None and starts_line(source, node.parent):
                yield Hole(HoleKind.ELSE, before.end_byte, node.end_byte, indentation(source, node.parent))
        elif node.type == "call":
            yield from _last_argument(node.child_by_field_name("arguments"))
        elif node.type == "boolean_operator":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None:
                yield Hole(HoleKind.RIGHT, left.end_byte, node.end_byte)
                yield Hole(HoleKind.LEFT, node.start_byte, right.start_byte)
        yield from _of_value(node)


def _of_block(source: ParsedSource, block: Node) -> Iterator[Hole]:
    body = body_statements(block)
    if not body or not starts_line(source, body[0]):
        return
    inner = indentation(source, body[0])
    yield Hole(HoleKind.BLOCK, body[0].start_byte, body[-1].end_byte, inner)
    for index, statement in enumerate(body):
        if statement.type in DEFINITIONS or not starts_line(source, statement):
            continue
        for last in range(index, min(index + 3, len(body))):
            if last + 1 < len(body) and starts_line(source, body[last + 1]):
                yield Hole(HoleKind.BEFORE, statement.start_byte, body[last + 1].start_byte, inner)
            elif last + 1 == len(body) and index:
                yield Hole(HoleKind.AFTER, body[index - 1].end_byte, body[last].end_byte, inner)


def _of_value(node: Node) -> Iterator[Hole]:
    value: Node | None = None
    if node.type == "return_statement" and node.named_children:
        value = node.named_children[0]
    elif node.type in ("assignment", "augmented_assignment"):
        value = node.child_by_field_name("right")
    if value is not None:
        yield Hole(HoleKind.VALUE, value.start_byte, value.end_byte)
    inner: Node | None = None
    if node.type == "call":
        called = node.child_by_field_name("function")
        inner = called.child_by_field_name("object") if called is not None and called.type == "attribute" else None
    elif node.type == "attribute":
        inner = node.child_by_field_name("object")
    elif node.type == "subscript":
        inner = node.child_by_field_name("value")
    if inner is not None:
        yield Hole(HoleKind.SUFFIX, inner.end_byte, node.end_byte)


def _last_argument(arguments: Node | None) -> Iterator[Hole]:
    given = [a for a in arguments.named_children if a.type != "comment"] if arguments is not None else []
    if arguments is None or arguments.type != "argument_list" or not given:
        return
    start = given[-2].end_byte if len(given) > 1 else arguments.start_byte + 1
    yield Hole(HoleKind.ARGUMENT, start, given[-1].end_byte)
