"""Statements that have to go in; the edits that take out their lines, comments and spacing, out.

A class that is left empty goes too, unless it has to stay; any other block that is left empty gets a `pass`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from pytest_ssr.weakening.source import DEFINITIONS, Edit, PythonFile

_DIRECTIVE = re.compile(rb"#\s*(fmt|ruff|pylint|isort|flake8|mypy|yapf|type|black|pyright|coding)\s*[:=]|#!")


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements that run in the scope of a module, a class or a compound statement."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and block:
            yield block
    for field in ("handlers", "cases"):
        for part in getattr(node, field, ()):
            yield part.body


def is_filler(node: ast.stmt) -> bool:
    """Tell whether a statement is a docstring, `pass` or `...`."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def with_emptied_classes(
    node: ast.AST, doomed: Collection[ast.stmt], stays: Callable[[ast.ClassDef], bool]
) -> set[ast.stmt]:
    """Return the doomed statements and the classes in which nothing else is left."""
    found = set(doomed)
    for block in blocks(node):
        for statement in block:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) or statement in found:
                continue
            found |= with_emptied_classes(statement, found, stays)
            if not isinstance(statement, ast.ClassDef) or found.isdisjoint(statement.body):
                continue
            if all(s in found or is_filler(s) for s in statement.body) and not stays(statement):
                found.add(statement)
    return found


def deletions(file: PythonFile, doomed: Collection[ast.stmt]) -> list[Edit]:
    """Return the edits that take doomed statements out of a file."""
    return list(_in_node(file, file.tree, doomed))


def _in_node(file: PythonFile, node: ast.AST, doomed: Collection[ast.stmt]) -> Iterator[Edit]:
    for block in blocks(node):
        for statement in block:
            if statement not in doomed and not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _in_node(file, statement, doomed)
        yield from _in_block(file, block, doomed, is_module=isinstance(node, ast.Module))


def _in_block(
    file: PythonFile, block: Sequence[ast.stmt], doomed: Collection[ast.stmt], *, is_module: bool
) -> Iterator[Edit]:
    empties = not is_module and all(s in doomed for s in block)
    runs: list[tuple[int, int]] = []
    for i, statement in enumerate(block):
        if statement not in doomed:
            continue
        if not is_alone(file, statement):
            yield Edit(*file.span(statement), b"pass")
            empties = False
            continue
        above = block[i - 1].end_lineno or 0 if i else 0
        first, last = _region(file, statement, above)
        if runs and all(not file.line(n).strip() for n in range(runs[-1][1] + 1, first)):
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    indent = indentation(file.line(block[0].lineno))
    for first, last in runs:
        if empties:
            yield Edit(file.starts[first - 1], file.starts[last], indent + b"pass" + file.newline)
            empties = False
        else:
            yield _without_lines(file, first, last, len(indent))


def is_alone(file: PythonFile, statement: ast.stmt) -> bool:
    """Tell whether no other code shares a statement's lines."""
    start, end = file.span(statement)
    before = file.data[file.starts[_first_line(statement) - 1] : start]
    after = file.data[end : file.starts[statement.end_lineno or 0]].lstrip(b" \t;")
    return not before.strip() and (not after.strip() or after.startswith(b"#"))


def _first_line(statement: ast.stmt) -> int:
    if isinstance(statement, DEFINITIONS) and statement.decorator_list:
        return min(statement.lineno, statement.decorator_list[0].lineno)
    return statement.lineno


def indentation(line: bytes) -> bytes:
    """Return the blanks a line starts with."""
    return line[: len(line) - len(line.lstrip(b" \t"))]


def _region(file: PythonFile, statement: ast.stmt, above: int) -> tuple[int, int]:
    """Return the first and last line of a statement with the comments that belong to it."""
    first = top = _first_line(statement)
    column = len(indentation(file.line(first)))
    while first - 1 > above:
        line = file.line(first - 1)
        is_own = line.lstrip(b" \t").startswith(b"#") and len(indentation(line)) == column
        if not is_own or _DIRECTIVE.match(line.lstrip(b" \t")):
            break
        first -= 1
    if first == 1:
        first = top
    last = n = statement.end_lineno or top
    while isinstance(statement, DEFINITIONS) and n < file.lines:
        n += 1
        line = file.line(n)
        if line.strip() and not (line.strip().startswith(b"#") and len(indentation(line)) > column):
            break
        if line.strip():
            last = n
    return first, last


def _without_lines(file: PythonFile, first: int, last: int, column: int) -> Edit:
    """Return the deletion of lines that leaves the larger of the gaps around them, or the one at a block's edge."""
    above, below = first, last
    while above > 1 and not file.line(above - 1).strip():
        above -= 1
    while below < file.lines and not file.line(below + 1).strip():
        below += 1
    starts_block = above == 1 or (column > 0 and len(indentation(file.line(above - 1))) < column)
    ends_block = below == file.lines or (column > 0 and len(indentation(file.line(below + 1))) < column)
    keeps_below = ends_block or (not starts_block and below - last > first - above)
    if keeps_below:
        return Edit(file.starts[above - 1], file.starts[last])
    return Edit(file.starts[first - 1], file.starts[below])
