"""Find the places of a function at which code may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tree_sitter import Node

from pytest_ssr.source.syntax_tree import (
    DEFINITIONS,
    Edit,
    ParsedSource,
    Scope,
    indentation,
    is_docstring,
    statements,
    walk,
)

_SMALL = ("none", "true", "false", "integer", "ellipsis", "identifier", "string", "list", "dictionary", "tuple")
_SUFFIXED = ("call", "identifier", "attribute", "subscript")
_CONDITIONAL = ("if_statement", "elif_clause", "while_statement")
_MOST_SMALL_BYTES = 6
_MOST_HOLLOW = 2


class HoleKind(IntEnum):
    """What is missing at a hole."""

    BLOCK = 0
    """All statements of a block."""
    BEFORE = 1
    """Statements before another one."""
    AFTER = 2
    """Statements at the end of a block."""
    ELSE = 3
    """`elif` or `else` with its block."""
    VALUE = 4
    """An expression."""
    SUFFIX = 5
    """An attribute, a call or a subscript of a value."""
    ARGUMENT = 6
    """The last argument of a call, or the last base class, with its comma."""
    RIGHT = 7
    """The right operand of `and` or `or`, with the operator."""
    LEFT = 8
    """The left operand, with the operator."""
    BASES = 9
    """The base classes, with brackets."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A place at which code may be missing."""

    kind: HoleKind
    start: int
    """Offset of the first byte that the missing code replaces."""
    end: int
    """Offset after the last one."""
    indentation: bytes = b""
    """Of the statements that are missing."""

    def edit(self, code: bytes) -> Edit:
        """Return the edit that puts code into the hole."""
        line = b"\n" + self.indentation
        if self.kind is HoleKind.BEFORE:
            code += line
        elif self.kind in (HoleKind.AFTER, HoleKind.ELSE):
            code = line + code
        elif self.kind is HoleKind.RIGHT or (self.kind is HoleKind.VALUE and self.start == self.end):
            code = b" " + code
        elif self.kind is HoleKind.LEFT:
            code += b" "
        return Edit(self.start, self.end, code)


def holes_of(source: ParsedSource, scope: Scope) -> Iterator[Hole]:
    """Yield the holes of one function, or of the head of a class."""
    if scope.kind == "class":
        yield from _bases(scope.node)
    if scope.kind != "function":
        return
    for node in walk(scope.node):
        if node.type == "block":
            yield from _of_block(source, node)
        elif node.type == "if_statement":
            yield from _branches(source, node)
        elif node.type in ("return_statement", "assignment"):
            yield from _values(source, node)
        elif node.type == "call":
            yield from _arguments(node.child_by_field_name("arguments"))
        if node.type in _CONDITIONAL:
            yield from _operands(node)
        if node.type in ("return_statement", "assignment", "expression_statement", "argument_list"):
            value = node.named_children[-1] if node.named_children else None
            if value is not None and value.type in _SUFFIXED:
                yield Hole(HoleKind.SUFFIX, value.end_byte, value.end_byte)


def body_statements(block: Node) -> list[Node]:
    """Return the statements of a block without a docstring."""
    body = statements(block)
    return body[1:] if body and is_docstring(body[0]) else body


def starts_line(source: ParsedSource, node: Node) -> bool:
    """Return whether nothing is in front of a node on its line."""
    return not source.data[source.line_start(node.start_byte) : node.start_byte].strip()


def _of_block(source: ParsedSource, block: Node) -> Iterator[Hole]:
    body = body_statements(block)
    if not body or not starts_line(source, body[0]):
        return
    inner = indentation(source, body[0])
    if len(body) <= _MOST_HOLLOW and all(_is_hollow(source, statement) for statement in body):
        yield Hole(HoleKind.BLOCK, body[0].start_byte, body[-1].end_byte, inner)
    for statement in body:
        if starts_line(source, statement) and statement.type not in DEFINITIONS:
            yield Hole(HoleKind.BEFORE, statement.start_byte, statement.start_byte, inner)
    yield Hole(HoleKind.AFTER, body[-1].end_byte, body[-1].end_byte, inner)


def _is_hollow(source: ParsedSource, statement: Node) -> bool:
    if statement.type == "pass_statement":
        return True
    value = statement.named_children[0] if statement.named_children else None
    if statement.type == "return_statement":
        return value is None or _is_small(source, value)
    if statement.type == "expression_statement" and value is not None:
        return value.type in ("ellipsis", "yield") and not value.named_children
    return False


def _is_small(source: ParsedSource, value: Node) -> bool:
    return value.type in _SMALL and len(source.text(value)) <= _MOST_SMALL_BYTES


def _branches(source: ParsedSource, node: Node) -> Iterator[Hole]:
    if not starts_line(source, node):
        return
    blocks = [node.child_by_field_name("consequence"), *node.children_by_field_name("alternative")]
    for block in blocks:
        if block is not None and block.type != "else_clause":
            yield Hole(HoleKind.ELSE, block.end_byte, block.end_byte, indentation(source, node))


def _values(source: ParsedSource, node: Node) -> Iterator[Hole]:
    value = node.named_children[0] if node.named_children else None
    if node.type == "assignment":
        value = node.child_by_field_name("right")
        if value is None:
            return
    if value is None:
        yield Hole(HoleKind.VALUE, node.end_byte, node.end_byte)
    elif _is_small(source, value):
        yield Hole(HoleKind.VALUE, value.start_byte, value.end_byte)


def _arguments(arguments: Node | None) -> Iterator[Hole]:
    if arguments is None or arguments.type != "argument_list":
        return
    given = [a for a in arguments.named_children if a.type != "comment"]
    at = given[-1].end_byte if given else arguments.start_byte + 1
    yield Hole(HoleKind.ARGUMENT, at, at)


def _operands(node: Node) -> Iterator[Hole]:
    condition = node.child_by_field_name("condition")
    if condition is not None:
        yield Hole(HoleKind.RIGHT, condition.end_byte, condition.end_byte)
        yield Hole(HoleKind.LEFT, condition.start_byte, condition.start_byte)


def _bases(node: Node) -> Iterator[Hole]:
    bases, name = node.child_by_field_name("superclasses"), node.child_by_field_name("name")
    if bases is not None and bases.named_children:
        yield from _arguments(bases)
    elif bases is not None:
        yield Hole(HoleKind.BASES, bases.start_byte, bases.end_byte)
    elif name is not None:
        yield Hole(HoleKind.BASES, name.end_byte, name.end_byte)
