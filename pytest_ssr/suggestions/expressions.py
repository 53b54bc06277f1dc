"""Write expressions as formatters do, and vary the literals in them."""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pytest_ssr.suggestions.literals import Expression, Literal, is_literal, source_of, value_of
from pytest_ssr.suggestions.nearby_values import values_near
from pytest_ssr.suggestions.oddness import oddness_of

_MOST_LITERALS = 8
_TEXT = re.compile(r"_ssr_text_\d+_")


def written(tree: ast.AST) -> str:
    """Return the source of a tree, with strings in double quotes."""
    quoting = _Quoting()
    text = ast.unparse(ast.fix_missing_locations(quoting.visit(copy.deepcopy(tree))))
    return _TEXT.sub(lambda match: quoting.texts.get(match[0], match[0]), text)


def literals_in(expression: Expression) -> list[Literal]:
    """Return the largest literals of an expression, at most some."""
    return [value for _, value in _literals(ast.parse(expression.source, mode="eval").body)]


def near_expressions(expression: Expression, constants: Iterable[Literal]) -> Iterator[tuple[Expression, int]]:
    """Yield expressions in which one literal differs, with the oddness of the new one."""
    constants, source = list(constants), expression.source.encode()
    for node, value in _literals(ast.parse(source, mode="eval").body):
        # Positions are counted in bytes; what `written` returns is one line.
        start, end = source[: node.col_offset], source[node.end_col_offset :]
        for other in values_near(value, constants):
            text = source_of(other)
            if text != source_of(value):
                yield replace(expression, source=(start + text.encode() + end).decode()), oddness_of(other, value)


class _Quoting(ast.NodeTransformer):
    """Puts a name in the place of each text, so that the text can be written in another way than `ast` does."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Leave a text with expressions in it as it is: its parts are no names."""
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Return a name for a text."""
        if not isinstance(node.value, str | bytes):
            return node
        name = f"_ssr_text_{len(self.texts)}_"
        self.texts[name] = source_of(node.value)
        return ast.Name(name, ast.Load())


def _literals(tree: ast.expr) -> Iterator[tuple[ast.expr, Literal]]:
    yield from itertools.islice(all_literals(tree), _MOST_LITERALS)


def all_literals(node: ast.AST) -> Iterator[tuple[ast.expr, Literal]]:
    """Yield the largest literals of a tree, with their values."""
    if isinstance(node, ast.expr) and not isinstance(node, ast.Name):
        try:
            value = value_of(node)
        except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
            pass
        else:
            if is_literal(value) and not isinstance(node, ast.Call):
                yield node, value
                return
    for child in ast.iter_child_nodes(node):
        yield from all_literals(child)
