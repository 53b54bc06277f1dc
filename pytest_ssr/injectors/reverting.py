"""A file and the hunks of a past commit in; the file without what these hunks did out.

A hunk applies where its new lines, context included, stand exactly, if that is one place only. The line number that
the diff gives is of no use: the file has moved on since.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
import symtable
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import decode_source
from itertools import pairwise

from pytest_ssr.injectors.equivalence import normal
from pytest_ssr.patch import Hunk
from pytest_ssr.quiet import recorded_warnings

_LEAST_LINES = 2
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_OLD_FUTURES = frozenset(("absolute_import", "division", "print_function", "unicode_literals", "with_statement"))
_BUILT_IN = frozenset((*dir(builtins), "__file__", "__path__", "__builtins__", "__class__", "__annotations__"))


@dataclass(frozen=True, slots=True)
class Effect:
    """What a file does, as far as tests can tell."""

    name: str
    """Equal for files that differ in comments, docstrings, formatting and relics of Python 2 only."""
    unbound: frozenset[str]
    """Global names that are read and that the file never binds; none with a star import."""


def effect_of(data: bytes) -> Effect | None:
    """Return what a file does, or None when it is no Python."""
    with recorded_warnings():
        try:
            tree = ast.parse(data)
            tree.body = [s for s in tree.body if not _is_old_future(s)]
            unbound = _unbound(data, tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    node.bases = [b for b in node.bases if not (isinstance(b, ast.Name) and b.id == "object")]
                while isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                    first = node.body.pop(0)
                    if not node.body and not isinstance(node, ast.Module):
                        node.body.append(ast.copy_location(ast.Pass(), first))
            code = compile(tree, "<candidate>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return None
    return Effect(hashlib.sha256(repr(normal(code)).encode("utf-8", "surrogatepass")).hexdigest(), unbound)


def _is_old_future(statement: ast.stmt) -> bool:
    """Tell whether a statement asks for what every Python 3 does."""
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module == "__future__"
        and all(a.name in _OLD_FUTURES for a in statement.names)
    )


def _unbound(data: bytes, tree: ast.Module) -> frozenset[str]:
    if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(tree)):
        return frozenset()
    top = symtable.symtable(decode_source(data), "<candidate>", "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    read = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    tables = top.get_children()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_global():
                (bound if symbol.is_assigned() else read).add(symbol.get_name())
    return frozenset(read - bound - _BUILT_IN)


def revert(data: bytes, hunks: Sequence[Hunk]) -> tuple[bytes, int] | None:
    """Return the file without what the hunks did, and the 1-based line of the first change in `data`.

    None when one of them does not apply, or could apply at several places.
    """
    lines: list[bytes] = _LINE.findall(data)
    windows = b"\n" in data and all(x.endswith(b"\r\n") or not x.endswith(b"\n") for x in lines)
    found: list[tuple[int, int, list[bytes], int]] = []
    for hunk in hunks:
        after, before = hunk.side(b"+"), hunk.side(b"-")
        if windows and not any(x.endswith(b"\r\n") for x in (*after, *before)):
            after, before = _translated(after), _translated(before)
        at = _place(lines, after)
        if at is None:
            return None
        lead = next((i for i, line in enumerate(hunk.lines) if line[:1] in (b"+", b"-")), 0)
        found.append((at, at + len(after), before, at + lead + 1))
    found.sort(key=lambda f: f[0])
    if not found or any(one[1] > two[0] for one, two in pairwise(found)):
        return None
    for start, end, before, _ in reversed(found):
        lines[start:end] = before
    if any(not x.endswith(b"\n") for x in lines[:-1]):
        return None
    return b"".join(lines), found[0][3]


def _translated(lines: list[bytes]) -> list[bytes]:
    """Give the lines the ends that git gives them in a checkout on Windows."""
    return [x[:-1] + b"\r\n" if x.endswith(b"\n") else x for x in lines]


def _place(lines: list[bytes], wanted: list[bytes]) -> int | None:
    """Return where the lines stand; None when that is nowhere or not one place, or they are too few to tell."""
    if sum(bool(x.strip()) for x in wanted) < _LEAST_LINES:
        return None
    found: int | None = None
    at = -1
    while True:
        try:
            at = lines.index(wanted[0], at + 1)
        except ValueError:
            return found
        if lines[at : at + len(wanted)] == wanted:
            if found is not None:
                return None
            found = at
