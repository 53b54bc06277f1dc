"""Paraphrase code, to check that a script judges what code does and not how it is written."""

from __future__ import annotations

import ast
import io
import random
import string
import tokenize
from itertools import count

from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.portable import unparse


def paraphrase(data: bytes) -> bytes | None:
    """Return a module with other spaces, no comments, and each returned value named first; None if it is not Python.

    Its behaviour stays the same, except for code that reads its own text or line numbers.
    """
    tree = parse_module(data)
    if tree is None:
        return None
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    try:
        return _spaced(unparse(_ReturnSplitter(taken).visit(tree))).encode()
    except (RecursionError, ValueError, tokenize.TokenError, SyntaxError):
        return None


class _ReturnSplitter(ast.NodeTransformer):
    """Splits a return into two statements: the value is assigned to a name, and the name is returned."""

    def __init__(self, taken: set[str]) -> None:
        # Drawn for each call: a script that knows the names could accept exactly these.
        letters = random.SystemRandom().choices(string.ascii_lowercase, k=6)
        self._names = (name for n in count() if (name := f"{''.join(letters)}_{n}") not in taken)

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if node.value is None:
            return node
        name = next(self._names)
        assigned = ast.Assign([ast.Name(name, ast.Store())], node.value)
        return [ast.copy_location(assigned, node), ast.Return(ast.Name(name, ast.Load()))]


def _spaced(text: str) -> str:
    """Double the space before each operator, outside of strings."""
    lines = io.StringIO(text).readlines()
    positions, depth = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind in ("FSTRING_START", "TSTRING_START")) - (kind in ("FSTRING_END", "TSTRING_END"))
        row, column = token.start
        before = lines[row - 1][:column] if kind == "OP" and not depth else ""
        if before.endswith(" ") and before.strip():
            positions.append((row - 1, column))
    for row, column in reversed(positions):
        lines[row] = f"{lines[row][:column]} {lines[row][column:]}"
    return "".join(lines)
