"""Revert the hunks of a past commit in a file.

A hunk applies if its new lines, context included, occur exactly once in the file. The diff's line number is of no use:
the file has changed since then.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_ssr.injectors.equivalence import normalize_code
from pytest_ssr.patch import Hunk
from pytest_ssr.source.module_names import ModuleNames
from pytest_ssr.source.parsing import parse_source, recorded_warnings

_MIN_LINES = 2
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_OLD_FUTURES = frozenset(("absolute_import", "division", "print_function", "unicode_literals", "with_statement"))


@dataclass(frozen=True, slots=True)
class Effect:
    """What a file does, as far as tests can observe."""

    fingerprint: str
    """Equal for files that differ in comments, docstrings, formatting and relics of Python 2 only."""
    unbound: frozenset[str]
    """Global names that the file reads but never binds; empty if it may bind names in ways that do not show."""


def effect_of(data: bytes) -> Effect | None:
    """Return what a file does, or None if it is not valid Python."""
    with recorded_warnings():
        try:
            tree = parse_source(data)
            tree.body = [s for s in tree.body if not _is_old_future(s)]
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
    names = ModuleNames.of(data)
    unbound = frozenset(name for _, name in names.unbound()) if names is not None else frozenset()
    return Effect(hashlib.sha256(repr(normalize_code(code)).encode("utf-8", "surrogatepass")).hexdigest(), unbound)


def _is_old_future(statement: ast.stmt) -> bool:
    """Return whether a statement imports only features that every Python 3 has."""
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module == "__future__"
        and all(a.name in _OLD_FUTURES for a in statement.names)
    )


def revert(data: bytes, hunks: Sequence[Hunk]) -> tuple[bytes, int] | None:
    """Return the file without what the hunks did, and the 1-based line of the first change in `data`.

    None if one of them does not apply, or could apply at several positions.
    """
    lines: list[bytes] = _LINE.findall(data)
    has_crlf = b"\n" in data and all(x.endswith(b"\r\n") or not x.endswith(b"\n") for x in lines)
    spans: list[tuple[int, int, list[bytes], int]] = []
    for hunk in hunks:
        after, before = hunk.side(b"+"), hunk.side(b"-")
        if has_crlf and not any(x.endswith(b"\r\n") for x in (*after, *before)):
            after, before = _with_crlf(after), _with_crlf(before)
        start = _find_lines(lines, after)
        if start is None:
            return None
        lead = next((i for i, line in enumerate(hunk.lines) if line[:1] in (b"+", b"-")), 0)
        spans.append((start, start + len(after), before, start + lead + 1))
    spans.sort(key=lambda span: span[0])
    if not spans or any(one[1] > two[0] for one, two in pairwise(spans)):
        return None
    for first, end, before, _ in reversed(spans):
        lines[first:end] = before
    if any(not x.endswith(b"\n") for x in lines[:-1]):
        return None
    return b"".join(lines), spans[0][3]


def _with_crlf(lines: list[bytes]) -> list[bytes]:
    """Convert line endings to CRLF, as git does in a checkout on Windows."""
    return [x[:-1] + b"\r\n" if x.endswith(b"\n") else x for x in lines]


def _find_lines(lines: list[bytes], expected: list[bytes]) -> int | None:
    """Return the index of the only occurrence of the lines; None if there is not exactly one, or for too few lines."""
    if sum(bool(x.strip()) for x in expected) < _MIN_LINES:
        return None
    index: int | None = None
    start = -1
    while True:
        try:
            start = lines.index(expected[0], start + 1)
        except ValueError:
            return index
        if lines[start : start + len(expected)] == expected:
            if index is not None:
                return None
            index = start
