"""Write several calls of one object as one expression, which a test shows as statements.

`(table := Table(), table.add(1), table)[-1].draw()` stands for three statements and an expression about `table`.
"""

from __future__ import annotations

import ast
import copy

_MOST_CALLS = 8


def extended(value: ast.expr, name: str, call: ast.expr) -> ast.expr | None:
    """Return the value of a variable after a call of its method; None if it is no object that a call has made."""
    parts = _parts(value)
    if (parts is None and not isinstance(value, ast.Call)) or len(parts or ()) > _MOST_CALLS:
        return None
    first: ast.expr = ast.NamedExpr(ast.Name(name, ast.Store()), value)
    done = [copy.deepcopy(part) for part in parts[:-1]] if parts is not None else [first]
    items = ast.Tuple([*done, call, ast.Name(name, ast.Load())], ast.Load())
    return ast.Subscript(items, ast.UnaryOp(ast.USub(), ast.Constant(1)), ast.Load())


def has_one_chain_at_most(tree: ast.expr) -> bool:
    """Return whether an expression has no two objects that several calls have made."""
    return sum(_parts(node) is not None for node in ast.walk(tree) if isinstance(node, ast.expr)) <= 1


def unchained(expression: str) -> tuple[list[str], str]:
    """Return the statements that an expression stands for, and the expression after them."""
    tree = ast.parse(expression, mode="eval")
    for node in ast.walk(tree):
        parts = _parts(node) if isinstance(node, ast.expr) else None
        if parts is None or not isinstance(parts[0], ast.NamedExpr) or not isinstance(node, ast.expr):
            continue
        name, source = parts[0].target.id, expression.encode()
        first = f"{name} = {ast.get_source_segment(expression, parts[0].value)}"
        others = [ast.get_source_segment(expression, part) or "" for part in parts[1:-1]]
        rest = source[: node.col_offset] + name.encode() + source[node.end_col_offset :]
        return [first, *others], rest.decode()
    return [], expression


def _parts(node: ast.expr) -> list[ast.expr] | None:
    """Return the assignment, the calls and the name of a chain; None for another expression."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Tuple) and node.value.elts:
        return node.value.elts if isinstance(node.value.elts[0], ast.NamedExpr) else None
    return None
