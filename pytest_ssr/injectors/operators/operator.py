"""What an operator is: a name, the syntax nodes it looks at, its edits, and examples that are its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.python_source import Edit, ParsedSource

Edits = Iterator[tuple[Edit, ...]]
Find = Callable[[ParsedSource, Node, Random], Edits]


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to change a program."""

    name: str
    """As users see it."""
    types: tuple[str, ...]
    """The node types it looks at."""
    find: Find
    """Yields each way to change such a node."""
    examples: tuple[tuple[str, str], ...]
    """Pairs: a program, and one of those that the operator makes of it."""
    source: str = ""
    """Where it comes from: SWE-smith, mutmut, developers' mistakes."""


def replaced(node: Node, text: bytes) -> tuple[Edit, ...]:
    """Return the edit that puts a text in a node's place."""
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
