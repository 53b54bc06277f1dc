"""Helpers that inspect the syntax of expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def root_of(node: ast.AST) -> str:
    """Return the name at the beginning of `a.b[c].d`; empty if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that an expression is made of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.keyword | ast.comprehension | ast.FormattedValue):
            yield child


def own_attribute(node: ast.AST) -> str:
    """Return the name of an attribute of `self`; empty for any other node."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def first_attribute(node: ast.AST) -> str:
    """Return `b` of `self.b.c[d]`."""
    while not (name := own_attribute(node)):
        assert isinstance(node, ast.Attribute | ast.Subscript | ast.Call)
        node = node.func if isinstance(node, ast.Call) else node.value
    return name


def is_immutable(node: ast.expr) -> bool:
    """Return whether an expression is an immutable literal."""
    if isinstance(node, ast.Tuple):
        return all(map(is_immutable, node.elts))
    return isinstance(node, ast.Constant)
