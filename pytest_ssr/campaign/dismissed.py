"""Leave out of reviews the kinds of changes that reviewers dismiss, so that the time goes to others.

Two reviewers judged 127 remarks on 42 pull requests, each without the other's verdicts
(benchmarks/results/2026-11-30-pull-requests.md): of the 46 of these kinds, neither called one useful. Nor were remarks
on code for another environment, and on declarations, on 40 others (benchmarks/results/2026-12-01-pull-requests.md).
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.source.function_diff import Spot
from pytest_ssr.source.parsing import parse_module

_OPERATORS = frozenset(
    ("equality-to-identity", "identity-to-equality", "shuffle-methods", "shuffle-statements", "swap-operands")
)
"""A class or a value for which they matter is rare in practice, and a test that shows it is odd."""
_EMPTY = frozenset(("None -> False", "False -> None"))
"""Most code asks for the truth of such a value only."""
_FOR_PEOPLE = re.compile(r",?\s*(stacklevel|help|description|epilog|metavar)=.* removed", re.DOTALL)
_EXCEPTIONS = re.compile(r"(\w+) -> (\w+)")
_IMPORT_ERRORS = frozenset(("ImportError", "ModuleNotFoundError"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_COVERED = re.compile(rb"#\s*pragma:\s*no\s*cover", re.IGNORECASE)


def is_dismissed(candidate: Candidate, source: bytes, runs: Callable[[Spot], bool]) -> bool:
    """Return whether reviewers would dismiss a change.

    source: the original content of its file. runs: returns whether the import of the file or a test reaches the
    statement at a spot; True if that is not known.
    """
    detail = candidate.detail
    return (
        candidate.operator in _OPERATORS
        or detail in _EMPTY
        or _FOR_PEOPLE.fullmatch(detail) is not None
        or (candidate.operator == "wrong-exception" and _is_near(detail))
        or any(_NOT_COVERED.search(line) for line in _lines_around(source, candidate.line))
        or _is_declaration(source, candidate.line)
        or _is_for_others(source, candidate.line, runs)
    )


def _is_near(detail: str) -> bool:
    """Return whether one of two exceptions is a kind of the other, so that most handlers treat them alike."""
    match = _EXCEPTIONS.fullmatch(detail)
    if match is None:
        return False
    old, new = (getattr(builtins, name, None) for name in match.groups())
    if not isinstance(old, type) or not isinstance(new, type):
        return False
    return issubclass(old, new) or issubclass(new, old)


def _is_declaration(source: bytes, line: int) -> bool:
    """Return whether a line is in a function with no body but `...`, as in a protocol; not one of its decorators."""
    functions = [s for s in _statements_around(source, line) if isinstance(s, _FUNCTIONS) and s.lineno <= line]
    return bool(functions) and all(_is_text(s) for s in functions[-1].body) and _is_ellipsis(functions[-1].body[-1])


def _is_for_others(source: bytes, line: int, runs: Callable[[Spot], bool]) -> bool:
    """Return whether a line is for another system, another version of Python, or without an optional package.

    Then nothing reaches the definition that the line is in, or the line handles that an import fails.
    """
    around = _statements_around(source, line)
    # The outermost statements of a file are not observed.
    unreached = [s for s in around[1:] if not _is_text(s) and not runs((s.lineno, s.col_offset))]
    if any(_handles_import(above, statement) for above, statement in pairwise(around) if statement in unreached):
        return True
    functions = [place for place, statement in enumerate(around) if isinstance(statement, _FUNCTIONS)]
    return bool(functions) and any(statement in unreached for statement in around[: functions[0] + 1])


def _handles_import(above: ast.stmt, statement: ast.stmt) -> bool:
    """Return whether a statement is in the handler of ImportError of an import statement."""
    if not isinstance(above, ast.Try):
        return False
    types = [handler.type for handler in above.handlers if statement in handler.body and handler.type is not None]
    names = {node.id for each in types for node in ast.walk(each) if isinstance(node, ast.Name)}
    tried = (node for each in above.body for node in ast.walk(each))
    return not names.isdisjoint(_IMPORT_ERRORS) and any(isinstance(n, ast.Import | ast.ImportFrom) for n in tried)


def _statements_around(source: bytes, line: int) -> tuple[ast.stmt, ...]:
    """Return the statements that a line is in, from the outermost one."""
    found: list[ast.stmt] = []
    node: ast.AST | None = _parsed(source)
    while node is not None:
        # By levels: the first one with the line is the outermost.
        inner = (each for each in ast.walk(node) if each is not node and isinstance(each, ast.stmt))
        node = next((each for each in inner if _first_line(each) <= line <= (each.end_lineno or 0)), None)
        if node is not None:
            found.append(node)
    return tuple(found)


_parsed = functools.lru_cache(maxsize=16)(parse_module)


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring or another constant, which does nothing."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_ellipsis(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and getattr(statement.value, "value", None) is ...


def _lines_around(source: bytes, number: int) -> Iterator[bytes]:
    """Yield a line, counted from 1, and the lines that begin the blocks around it."""
    lines = source.splitlines()[:number]
    if not lines:
        return
    yield lines[-1]
    indent = _indent(lines[-1])
    for line in reversed(lines[:-1]):
        if line.strip() and _indent(line) < indent:
            indent = _indent(line)
            yield line


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip())
