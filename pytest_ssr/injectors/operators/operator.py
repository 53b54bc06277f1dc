"""Define mutation operators: a name, the syntax nodes they apply to, the edits, and examples that are the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tree_sitter import Node

from pytest_ssr.source.syntax_tree import Edit, ParsedSource

Edits = Iterator[tuple[Edit, ...]]
Find = Callable[[ParsedSource, Node, Random], Edits]


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to change a program."""

    name: str
    """The name as shown to users."""
    types: tuple[str, ...]
    """The node types that it applies to."""
    find: Find
    """Yields each way to change such a node."""
    examples: tuple[tuple[str, str], ...]
    """Pairs of a program and one of the operator's results for it."""
    source: str = ""
    """Its origin: SWE-smith, mutmut, developers' mistakes."""


def replaced(node: Node, text: bytes) -> tuple[Edit, ...]:
    """Return the edit that replaces a node with `text`."""
    return (Edit(node.start_byte, node.end_byte, text),)


def swapped(source: ParsedSource, one: Node, other: Node) -> tuple[Edit, ...]:
    """Return the edits that exchange two nodes."""
    return (
        Edit(one.start_byte, one.end_byte, source.text(other)),
        Edit(other.start_byte, other.end_byte, source.text(one)),
    )


def operands(node: Node) -> tuple[Node | None, Node | None]:
    """Return the left and right side of a binary or boolean expression."""
    return node.child_by_field_name("left"), node.child_by_field_name("right")
