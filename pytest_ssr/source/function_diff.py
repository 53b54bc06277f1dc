"""Compare two versions of a Python file: which statements must a run reach to be affected by the change.

The versions are compared by their syntax. A change inside functions affects only runs that reach the point in the
block at which the versions diverge; a change outside of functions acts when the module is imported. Only the functions
that changed are parsed again: the lines around them are the same, and a function that parses on its own is the same
statement in the file.
"""

from __future__ import annotations

import ast
import difflib
import functools
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_ssr.source.parsing import parse_source, recorded_warnings

Spot = tuple[int, int]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """An outermost function (or method) in which two versions of a file differ."""

    name: str
    """Its name."""
    classes: tuple[str, ...]
    """The classes it lies in, outermost first."""
    old_line: int
    """1-based first line in the old version, decorators included."""
    new_line: int
    """1-based first line in the new version, decorators included."""
    old_source: str
    """Its lines in the old version."""
    new_source: str
    """Its lines in the new version."""
    spots: frozenset[Spot]
    """Line and column of the statements of the old version that a run must reach to be affected."""
    imports: tuple[str, ...]
    """Names that the module imports: calls of their attributes are compiled differently from others."""
    inside: frozenset[Spot]
    """All statements of the innermost functions that differ: if none runs at import, neither does the change."""


@dataclass(frozen=True, slots=True)
class _Unit:
    node: _Function
    classes: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _File:
    lines: tuple[str, ...]
    units: tuple[_Unit, ...]
    imports: tuple[str, ...]

    def unit_of(self, a: int, b: int) -> int | None:
        """Return the index of the function whose body contains the old lines [a, b), or the gap before line a."""
        for index, unit in enumerate(self.units):
            body = unit.node.body[0].lineno
            if unit.node.lineno < body <= a + 1 and b <= unit.last:
                return index
        return None


@functools.lru_cache(maxsize=256)
def changed_functions(old: bytes, new: bytes) -> tuple[ChangedFunction, ...] | None:
    """Return the functions that differ; None if the difference is not confined to function bodies."""
    before = _parsed(old)
    if before is None:
        return None
    try:
        after = new.decode("utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
    touched: dict[int, None] = {}
    shifts: list[tuple[int, int]] = []
    for a, b, c, d in _differences(before, after):
        index = before.unit_of(a, b)
        if index is None:
            return None
        touched[index] = None
        shifts.append((b, (d - c) - (b - a)))
    result = []
    for index in touched:
        unit = before.units[index]
        start = unit.first - 1 + sum(by for end, by in shifts if end < unit.first)
        length = unit.last - unit.first + 1 + sum(by for end, by in shifts if unit.first <= end <= unit.last)
        changed = _compare(unit, before, after[start : start + length], start + 1)
        if changed is None:
            return None
        result.append(changed)
    return tuple(result)


def _differences(before: _File, after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the 0-based line ranges that differ, old [a, b) and new [c, d); only one if a function contains it."""
    old, new, head, tail = before.lines, after, 0, 0
    shorter = min(len(old), len(new))
    while head < shorter and old[head] == new[head]:
        head += 1
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b, c, d = head, len(old) - tail, head, len(new) - tail
    if before.unit_of(a, b) is not None or (a, c) == (b, d):
        return [(a, b, c, d)] if (a, c) != (b, d) else []
    matcher = difflib.SequenceMatcher(None, old[a:b], new[c:d], autojunk=False)
    return [(a + i, a + j, c + k, c + m) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]


@functools.lru_cache(maxsize=64)
def _parsed(source: bytes) -> _File | None:
    try:
        if tokenize.detect_encoding(io.BytesIO(source).readline)[0] != "utf-8":
            return None
        text = source.decode("utf-8")
        with recorded_warnings():
            tree = parse_source(text)
    except (SyntaxError, ValueError, RecursionError, UnicodeDecodeError):
        return None
    # Lines as the parser counts them; a form feed or another line separator would make the two counts differ.
    lines = tuple(text.splitlines(keepends=True))
    if len(lines) != len(text.encode().split(b"\n")) - text.endswith("\n") or "\r" in text or text.startswith("\ufeff"):
        return None
    return _File(lines, tuple(_units(tree.body, ())), tuple(sorted(set(_imports(tree)))))


def _imports(scope: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (a.asname or a.name.partition(".")[0] for a in node.names if a.name != "*")
        elif not isinstance(node, _SCOPES):
            yield from _imports(node)


def _units(body: Sequence[ast.stmt], classes: tuple[str, ...]) -> Iterator[_Unit]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield _Unit(node, classes, first, node.end_lineno or node.lineno)
        elif isinstance(node, ast.ClassDef):
            yield from _units(node.body, (*classes, node.name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for name in _BLOCKS:
                yield from _units(getattr(node, name, ()), classes)
        elif isinstance(node, ast.ExceptHandler):
            yield from _units(node.body, classes)


def _compare(unit: _Unit, before: _File, new: Sequence[str], new_line: int) -> ChangedFunction | None:
    old_source, new_source = "".join(before.lines[unit.first - 1 : unit.last]), "".join(new)
    with recorded_warnings():
        node = _parse_function(new)
    if (
        node is None
        or not _equal_except_blocks(unit.node, node)
        or _compiler_messages(old_source) != _compiler_messages(new_source)
    ):
        return None
    spots: set[Spot] = set()
    inside: set[Spot] = set()
    try:
        _compare_blocks(unit.node, node, spots, inside, _spots_of(unit.node))
        _compare_bindings(unit.node, node, spots, inside)
    except _AtImportError:
        return None
    return ChangedFunction(
        unit.node.name,
        unit.classes,
        unit.first,
        new_line,
        old_source,
        new_source,
        frozenset(spots),
        before.imports,
        frozenset(inside),
    )


def _compiler_messages(source: str) -> list[str]:
    """Return the compiler's error or warnings for a function's source: these end the import of its module."""
    text = ("if 1:\n" if source[:1].isspace() else "") + source
    with recorded_warnings() as recorded:
        try:
            compile(text, "", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            return [f"{type(error).__name__}: {error}"]
    return sorted(f"{w.category.__name__}: {w.message}" for w in recorded)


def _parse_function(lines: Sequence[str]) -> _Function | None:
    """Parse lines that should be one function and nothing else."""
    try:
        body = parse_source(("if 1:\n" if lines[0][:1].isspace() else "") + "".join(lines)).body
    except (SyntaxError, ValueError, IndexError, RecursionError):
        return None
    if lines[0][:1].isspace():
        body = body[0].body if len(body) == 1 and isinstance(body[0], ast.If) else []
    return body[0] if len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef) else None


class _AtImportError(Exception):
    """The difference acts when a function is defined, not when it runs."""


def _dump(node: ast.AST) -> str:
    return ast.dump(node)


def _equal_except_blocks(old: ast.AST, new: ast.AST) -> bool:
    """Return whether two nodes are equal apart from the blocks that they contain."""
    if type(old) is not type(new):
        return False
    for name, value in ast.iter_fields(old):
        other = getattr(new, name, None)
        if name in _BLOCKS and isinstance(value, list) and all(_is_block_item(x) for x in value):
            if not isinstance(other, list) or bool(value) != bool(other):
                return False
        elif _comparable(value) != _comparable(other):
            return False
    return True


def _is_block_item(value: object) -> bool:
    return isinstance(value, ast.stmt | ast.ExceptHandler | ast.match_case)


def _comparable(value: object) -> object:
    if isinstance(value, ast.AST):
        return _dump(value)
    if isinstance(value, list):
        return [_comparable(x) for x in value]
    return type(value).__name__, value


def _compare_blocks(old: ast.AST, new: ast.AST, spots: set[Spot], inside: set[Spot], scope: frozenset[Spot]) -> None:
    """Add the points at which the blocks of two like nodes diverge; later statements are reached through them."""
    for name in _BLOCKS:
        olds, news = getattr(old, name, None), getattr(new, name, None)
        if (
            not isinstance(olds, list)
            or not isinstance(news, list)
            or not olds
            or [*map(_dump, olds)] == [*map(_dump, news)]
        ):
            continue
        if name == "body" and isinstance(old, _Function | ast.ClassDef) and _docstring(olds) != _docstring(news):
            raise _AtImportError
        reached: ast.AST | None
        for node, twin in zip(olds, news, strict=False):
            if _dump(node) == _dump(twin):
                continue
            if len(olds) == len(news) and _equal_except_blocks(node, twin) and _has_blocks(node):
                _compare_blocks(node, twin, spots, inside, _spots_of(node) if isinstance(node, _Function) else scope)
                continue
            reached = node
            break
        else:
            reached = olds[min(len(olds) - 1, len(news))] if len(olds) != len(news) else None
        if reached is None:
            continue
        # Handlers and cases are not statements: control reaches them through the statement that they belong to.
        reached = reached if isinstance(reached, ast.stmt) else old
        if not isinstance(reached, ast.stmt) or _is_docstring(reached):
            raise _AtImportError
        spots.add((reached.lineno, reached.col_offset))
        inside |= scope


def _docstring(body: Sequence[ast.AST]) -> str:
    return _dump(body[0]) if body and _is_docstring(body[0]) else ""


def _has_blocks(node: ast.AST) -> bool:
    return any(isinstance(getattr(node, name, None), list) for name in _BLOCKS)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _spots_of(function: ast.AST) -> frozenset[Spot]:
    """Return the statements of a function without those of nested functions."""
    spots: set[Spot] = set()
    pending: list[ast.AST] = list(getattr(function, "body", []))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            spots.add((node.lineno, node.col_offset))
        if isinstance(node, _Function):
            continue
        for name in _BLOCKS:
            pending += getattr(node, name, None) or []
    return frozenset(spots)


def _compare_bindings(old: ast.AST, new: ast.AST, spots: set[Spot], inside: set[Spot]) -> None:
    """Add the start of every function whose names are bound differently.

    Such a change affects runs that never reach it: a name assigned anywhere in a function is local everywhere in it.
    """
    olds, news = list(_functions(old)), list(_functions(new))
    same_number = len(olds) == len(news)
    for index, a in enumerate(olds):
        if same_number and _is_generator(a) != _is_generator(news[index]):
            # A decorator may have checked which kind of function it is.
            raise _AtImportError
        if not same_number or _bindings(a) != _bindings(news[index]):
            body = getattr(a, "body", [])
            start = body[1] if len(body) > 1 and _is_docstring(body[0]) else body[0]
            spots.add((start.lineno, start.col_offset))
            inside |= _spots_of(a)


def _functions(node: ast.AST) -> Iterator[ast.AST]:
    return (x for x in ast.walk(node) if isinstance(x, _Function))


def _is_generator(function: ast.AST) -> bool:
    """Return whether a function is a generator."""
    return bool(_bindings(function) & {ast.Yield})


def _bindings(function: ast.AST) -> frozenset[object]:
    """Return what a function binds, without what nested functions bind, and whether it is a generator."""
    bound: set[object] = set()
    pending: list[ast.AST] = list(getattr(function, "body", []))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.comprehension):
            # Its names are local to it, but those of := belong to the function.
            pending += [x for x in ast.walk(node.target) if not isinstance(x, ast.Name)]
            pending += [node.iter, *node.ifs]
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            bound |= {(type(node).__name__, n) for n in node.names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            bound.add(ast.Yield if isinstance(node, ast.Yield | ast.YieldFrom) else ast.Await)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        if isinstance(node, _SCOPES):
            if not isinstance(node, ast.Lambda):
                bound.add(node.name)
            # Another scope binds nothing here; its free variables may turn this function's names into cells.
            continue
        pending += ast.iter_child_nodes(node)
    return frozenset(bound)
