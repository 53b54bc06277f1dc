"""Write Python source that older versions can read, because a project's interpreter may be older than this one.

Since Python 3.12, `ast.unparse` repeats an f-string's quotes inside of it; since 3.11, it writes `x[*a]`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator


def unparse(tree: ast.AST) -> str:
    """Return the source of a tree; any version reads it that has the syntax of what the tree was parsed from."""
    if any(map(_is_newer, ast.walk(tree))):
        tree = _Writer().visit(copy.deepcopy(tree))
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_newer(node: ast.AST) -> bool:
    """Return whether `ast.unparse` may write a node in syntax that older versions do not have."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Tuple) and any(isinstance(e, ast.Starred) for e in node.slice.elts)
    return isinstance(node, ast.JoinedStr) and any(
        isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))
        for expression in _expressions(node)
        for part in ast.walk(expression)
    )


def _expressions(node: ast.JoinedStr) -> Iterator[ast.expr]:
    """Yield the expressions of an f-string, each before those of its format."""
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            yield value.value
            if isinstance(value.format_spec, ast.JoinedStr):
                yield from _expressions(value.format_spec)


def _template(node: ast.JoinedStr) -> str:
    """Return an f-string as a template for `str.format`, with empty fields."""
    text = ""
    for value in node.values:
        if isinstance(value, ast.Constant):
            text += str(value.value).replace("{", "{{").replace("}", "}}")
        elif isinstance(value, ast.FormattedValue):
            conversion = f"!{chr(value.conversion)}" if value.conversion > 0 else ""
            form = f":{_template(value.format_spec)}" if isinstance(value.format_spec, ast.JoinedStr) else ""
            text += f"{{{conversion}{form}}}"
    return text


class _Writer(ast.NodeTransformer):
    """Replaces what older versions cannot read by what means the same."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Replace an f-string that contains strings by a call of `str.format`."""
        needs_change = _is_newer(node)
        self.generic_visit(node)
        if not needs_change:
            return node
        function = ast.Attribute(ast.Constant(_template(node)), "format", ast.Load())
        return ast.Call(function, list(_expressions(node)), [])

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        """Leave the format as it is: its expressions belong to the whole f-string."""
        node.value = self.visit(node.value)
        for value in node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else ():
            self.visit(value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        """Slice the tuple of a subscript, so that it is written with parentheses."""
        needs_change = _is_newer(node)
        self.generic_visit(node)
        if needs_change:
            node.slice = ast.Subscript(node.slice, ast.Slice(), ast.Load())
        return node
