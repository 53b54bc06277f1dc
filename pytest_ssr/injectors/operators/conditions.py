"""Operators on conditions: comparisons, `and`, `or`, `not`, the branches of a conditional expression."""

from __future__ import annotations

from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, operands, replaced, swapped
from pytest_ssr.source.syntax_tree import ParsedSource

_BOUNDARY = {b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">"}
_OPPOSITE = {
    b"==": b"!=", b"!=": b"==", b"<": b">=", b">=": b"<", b">": b"<=", b"<=": b">",
    b"is": b"is not", b"is not": b"is", b"in": b"not in", b"not in": b"in",
}  # fmt: skip
_EQUALITY = {b"is": b"==", b"is not": b"!="}
_IDENTITY = {b"==": b"is", b"!=": b"is not"}
_LITERALS = (
    "integer",
    "float",
    "string",
    "concatenated_string",
    "tuple",
    "list",
    "dictionary",
    "set",
    "unary_operator",
)


def _signs(source: ParsedSource, node: Node) -> list[Node]:
    return [c for c in node.children if not c.is_named]


def swap_comparison(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange the sides of an ordering or a membership test."""
    signs = [s for s in _signs(source, node) if source.text(s) in (*_BOUNDARY, b"in", b"not in")]
    sides = node.named_children
    if len(signs) == 1 and len(sides) == 2 and source.text(sides[0]) != source.text(sides[1]):
        yield swapped(source, sides[0], sides[1])


def boundary_comparison(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Include or exclude the boundary."""
    for sign in _signs(source, node):
        if source.text(sign) in _BOUNDARY:
            yield replaced(sign, _BOUNDARY[source.text(sign)])


def negate_comparison(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Test for the opposite."""
    for sign in _signs(source, node):
        if source.text(sign) in _OPPOSITE:
            yield replaced(sign, _OPPOSITE[source.text(sign)])


def identity_to_equality(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Compare values instead of identities."""
    for sign in _signs(source, node):
        if source.text(sign) in _EQUALITY:
            yield replaced(sign, _EQUALITY[source.text(sign)])


def equality_to_identity(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Compare identities instead of values; not with literals, for which Python itself warns."""
    if any(side.type in _LITERALS for side in node.named_children):
        return
    for sign in _signs(source, node):
        if source.text(sign) in _IDENTITY:
            yield replaced(sign, _IDENTITY[source.text(sign)])


def change_boolean(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange `and` and `or`."""
    sign = node.child_by_field_name("operator")
    if sign is not None:
        yield replaced(sign, b"or" if source.text(sign) == b"and" else b"and")


def drop_condition_part(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Forget one side of `and` or `or`."""
    left, right = operands(node)
    if left is not None and right is not None:
        yield replaced(node, source.text(left))
        yield replaced(node, source.text(right))


def drop_not(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Forget a `not`."""
    inner = node.child_by_field_name("argument")
    if inner is not None:
        yield replaced(node, source.text(inner))


def swap_branches(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange the two values of a conditional expression."""
    parts = [c for c in node.named_children if c.type != "comment"]
    if len(parts) == 3 and source.text(parts[0]) != source.text(parts[2]):
        yield swapped(source, parts[0], parts[2])


OPERATORS = (
    Operator("swap-comparison", ("comparison_operator",), swap_comparison,
             (("x = a < b\n", "x = b < a\n"), ("x = a in b\n", "x = b in a\n")), "SWE-smith"),
    Operator("boundary-comparison", ("comparison_operator",), boundary_comparison,
             (("x = a < b\n", "x = a <= b\n"), ("x = a >= b\n", "x = a > b\n")), "mistakes"),
    Operator("negate-comparison", ("comparison_operator",), negate_comparison,
             (("x = a == b\n", "x = a != b\n"), ("x = a not in b\n", "x = a in b\n")), "mistakes"),
    Operator("identity-to-equality", ("comparison_operator",), identity_to_equality,
             (("x = a is b\n", "x = a == b\n"),), "mistakes"),
    Operator("equality-to-identity", ("comparison_operator",), equality_to_identity,
             (("x = a == b\n", "x = a is b\n"),), "mistakes"),
    Operator("change-boolean", ("boolean_operator",), change_boolean, (("x = a and b\n", "x = a or b\n"),), "mistakes"),
    Operator("drop-condition-part", ("boolean_operator",), drop_condition_part,
             (("x = a and b\n", "x = a\n"), ("x = a or b\n", "x = b\n")), "mistakes"),
    Operator("drop-not", ("not_operator",), drop_not, (("x = not a\n", "x = a\n"),), "mistakes"),
    Operator("swap-branch-values", ("conditional_expression",), swap_branches,
             (("x = a if c else b\n", "x = b if c else a\n"),), "mistakes"),
)  # fmt: skip
