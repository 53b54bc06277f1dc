"""The same code in other words, to see that a script judges what code does and not how it is written."""

from __future__ import annotations

import ast
import io
import random
import string
import tokenize
from itertools import count

from pytest_ssr.grading.parsing import parsed


def reworded(data: bytes) -> bytes | None:
    """Return a module with other spaces, no comments, and each returned value named first; None where it is no Python.

    What it computes stays the same; only code that reads its own text or line numbers can tell.
    """
    tree = parsed(data)
    if tree is None:
        return None
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    try:
        return _spaced(ast.unparse(ast.fix_missing_locations(_Naming(taken).visit(tree)))).encode()
    except (RecursionError, ValueError, tokenize.TokenError, SyntaxError):
        return None


class _Naming(ast.NodeTransformer):
    """Makes two statements of a return: the value gets a name, and that is returned."""

    def __init__(self, taken: set[str]) -> None:
        # Drawn anew each time: a script that knows the words could accept just these.
        letters = random.SystemRandom().choices(string.ascii_lowercase, k=6)
        self._names = (name for n in count() if (name := f"{''.join(letters)}_{n}") not in taken)

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if node.value is None:
            return node
        name = next(self._names)
        assigned = ast.Assign([ast.Name(name, ast.Store())], node.value)
        return [ast.copy_location(assigned, node), ast.Return(ast.Name(name, ast.Load()))]


def _spaced(text: str) -> str:
    """Double the space before each operator, outside of texts."""
    lines = io.StringIO(text).readlines()
    places, depth = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind in ("FSTRING_START", "TSTRING_START")) - (kind in ("FSTRING_END", "TSTRING_END"))
        row, column = token.start
        before = lines[row - 1][:column] if kind == "OP" and not depth else ""
        if before.endswith(" ") and before.strip():
            places.append((row - 1, column))
    for row, column in reversed(places):
        lines[row] = f"{lines[row][:column]} {lines[row][column:]}"
    return "".join(lines)
