"""What a change of a Python file can be seen by: the statements that control must reach for a run to differ.

Two versions of a file are compared by their syntax. A change that lies inside functions is seen only by runs that
reach the place in the block where the versions part; one that lies outside of them acts when the module is imported.
Only the functions that changed are parsed anew: the lines around them are the same, and a function that parses by
itself is the same statement in the file.
"""

from __future__ import annotations

import ast
import difflib
import functools
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_ssr.quiet import recorded_warnings

Spot = tuple[int, int]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """One outermost function (or method) inside which two versions of a file differ."""

    name: str
    """Its name."""
    classes: tuple[str, ...]
    """The classes it lies in, outermost first."""
    old_line: int
    """Its first line, decorators included, in the old version; from 1."""
    new_line: int
    """The same in the new version."""
    old_source: str
    """Its lines in the old version."""
    new_source: str
    """Its lines in the new version."""
    spots: frozenset[Spot]
    """Line and column of the statements of the old version that control must reach to see the difference."""
    imports: tuple[str, ...]
    """Names that the module imports: calls of their attributes are compiled otherwise than those of others."""
    inside: frozenset[Spot]
    """All statements of the innermost functions that differ: where none runs at import, nor does the change."""


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
        """Return which function holds the old lines [a, b), or the gap before line a, below its header."""
        for place, unit in enumerate(self.units):
            body = unit.node.body[0].lineno
            if unit.node.lineno < body <= a + 1 and b <= unit.last:
                return place
        return None


@functools.lru_cache(maxsize=256)
def changed_functions(old: bytes, new: bytes) -> tuple[ChangedFunction, ...] | None:
    """Return the functions that differ; None where the difference is not confined to bodies of functions."""
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
        place = before.unit_of(a, b)
        if place is None:
            return None
        touched[place] = None
        shifts.append((b, (d - c) - (b - a)))
    found = []
    for place in touched:
        unit = before.units[place]
        start = unit.first - 1 + sum(by for end, by in shifts if end < unit.first)
        length = unit.last - unit.first + 1 + sum(by for end, by in shifts if unit.first <= end <= unit.last)
        changed = _compare(unit, before, after[start : start + length], start + 1)
        if changed is None:
            return None
        found.append(changed)
    return tuple(found)


def _differences(before: _File, after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return ranges of lines, from 0, that differ: [a, b) of the old, [c, d) of the new; one if a function holds it."""
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
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, UnicodeDecodeError):
        return None
    # Lines as the parser counts them; a form feed or another separator of text would set the two apart.
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
        node = _function(new)
    if node is None or not _like(unit.node, node) or _complaints(old_source) != _complaints(new_source):
        return None
    spots: set[Spot] = set()
    inside: set[Spot] = set()
    try:
        _blocks(unit.node, node, spots, inside, _spots_of(unit.node))
        _scopes(unit.node, node, spots, inside)
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


def _complaints(source: str) -> list[str]:
    """Return what the compiler refuses or warns about in a function's text: that ends the import of its module."""
    text = ("if 1:\n" if source[:1].isspace() else "") + source
    with recorded_warnings() as found:
        try:
            compile(text, "", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            return [f"{type(error).__name__}: {error}"]
    return sorted(f"{w.category.__name__}: {w.message}" for w in found)


def _function(lines: Sequence[str]) -> _Function | None:
    """Parse lines that should be one function and nothing else."""
    try:
        body = ast.parse(("if 1:\n" if lines[0][:1].isspace() else "") + "".join(lines)).body
    except (SyntaxError, ValueError, IndexError, RecursionError):
        return None
    if lines[0][:1].isspace():
        body = body[0].body if len(body) == 1 and isinstance(body[0], ast.If) else []
    return body[0] if len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef) else None


class _AtImportError(Exception):
    """The difference acts when a function is made, not when it runs."""


def _dump(node: ast.AST) -> str:
    return ast.dump(node)


def _like(old: ast.AST, new: ast.AST) -> bool:
    """Tell whether two nodes are equal but for the blocks they hold."""
    if type(old) is not type(new):
        return False
    for name, value in ast.iter_fields(old):
        other = getattr(new, name, None)
        if name in _BLOCKS and isinstance(value, list) and all(_is_block_item(x) for x in value):
            if not isinstance(other, list) or bool(value) != bool(other):
                return False
        elif _text(value) != _text(other):
            return False
    return True


def _is_block_item(value: object) -> bool:
    return isinstance(value, ast.stmt | ast.ExceptHandler | ast.match_case)


def _text(value: object) -> object:
    if isinstance(value, ast.AST):
        return _dump(value)
    if isinstance(value, list):
        return [_text(x) for x in value]
    return type(value).__name__, value


def _blocks(old: ast.AST, new: ast.AST, spots: set[Spot], inside: set[Spot], scope: frozenset[Spot]) -> None:
    """Add where the blocks of two like nodes part; what comes after that place in a block is reached through it."""
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
        seen: ast.AST | None
        for node, twin in zip(olds, news, strict=False):
            if _dump(node) == _dump(twin):
                continue
            if len(olds) == len(news) and _like(node, twin) and _has_blocks(node):
                _blocks(node, twin, spots, inside, _spots_of(node) if isinstance(node, _Function) else scope)
                continue
            seen = node
            break
        else:
            seen = olds[min(len(olds) - 1, len(news))] if len(olds) != len(news) else None
        if seen is None:
            continue
        # Handlers and cases are no statements: control reaches them through the one they belong to.
        seen = seen if isinstance(seen, ast.stmt) else old
        if not isinstance(seen, ast.stmt) or _is_text(seen):
            raise _AtImportError
        spots.add((seen.lineno, seen.col_offset))
        inside |= scope


def _docstring(body: Sequence[ast.AST]) -> str:
    return _dump(body[0]) if body and _is_text(body[0]) else ""


def _has_blocks(node: ast.AST) -> bool:
    return any(isinstance(getattr(node, name, None), list) for name in _BLOCKS)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _spots_of(function: ast.AST) -> frozenset[Spot]:
    """Return the statements of a function without those of functions in it."""
    found: set[Spot] = set()
    waiting: list[ast.AST] = list(getattr(function, "body", []))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            found.add((node.lineno, node.col_offset))
        if isinstance(node, _Function):
            continue
        for name in _BLOCKS:
            waiting += getattr(node, name, None) or []
    return frozenset(found)


def _scopes(old: ast.AST, new: ast.AST, spots: set[Spot], inside: set[Spot]) -> None:
    """Add the start of every function whose names are bound otherwise.

    Such a change is seen by runs that never reach it: a name assigned anywhere is local everywhere.
    """
    olds, news = list(_functions(old)), list(_functions(new))
    same_number = len(olds) == len(news)
    for place, a in enumerate(olds):
        if same_number and _kind(a) != _kind(news[place]):
            # A decorator may have asked what kind of function it is.
            raise _AtImportError
        if not same_number or _bindings(a) != _bindings(news[place]):
            body = getattr(a, "body", [])
            start = body[1] if len(body) > 1 and _is_text(body[0]) else body[0]
            spots.add((start.lineno, start.col_offset))
            inside |= _spots_of(a)


def _functions(node: ast.AST) -> Iterator[ast.AST]:
    return (x for x in ast.walk(node) if isinstance(x, _Function))


def _kind(function: ast.AST) -> bool:
    """Tell whether a function is a generator."""
    return bool(_bindings(function) & {ast.Yield})


def _bindings(function: ast.AST) -> frozenset[object]:
    """Return what a function binds, without what functions in it bind, and whether it is a generator."""
    found: set[object] = set()
    waiting: list[ast.AST] = list(getattr(function, "body", []))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.comprehension):
            # Its names are its own, but those of := belong to the function.
            waiting += [x for x in ast.walk(node.target) if not isinstance(x, ast.Name)]
            waiting += [node.iter, *node.ifs]
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found |= {(type(node).__name__, n) for n in node.names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            found.add(ast.Yield if isinstance(node, ast.Yield | ast.YieldFrom) else ast.Await)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        if isinstance(node, _SCOPES):
            if not isinstance(node, ast.Lambda):
                found.add(node.name)
            # What runs in another scope binds nothing here; its free names may make this one's names cells.
            continue
        waiting += ast.iter_child_nodes(node)
    return frozenset(found)
