"""Where a test method is written: in its class, in a base of that, or in one that another file of tests holds."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.grading.parsing import parsed
from pytest_ssr.surface import is_test_surface
from pytest_ssr.weakening.definitions import definitions_of, find_class
from pytest_ssr.weakening.text import Definition

_DEEPEST = 20
_WITHOUT_TESTS = frozenset(("object", "ABC", "Generic", "Protocol", "TestCase", "IsolatedAsyncioTestCase"))


def _written_in(
    tree_of: Callable[[str], ast.Module | None], path: str, chain: Sequence[str]
) -> tuple[str, list[Definition]]:
    """Return the file in which a test is written and its definitions there; none where that is not found.

    tree_of: the syntax of a file by its relative path, None for what is no file of tests. chain: the names that lead
    to the test in the file at `path`: its classes, then its own.
    """
    tree = tree_of(path)
    if tree is None:
        return path, []
    if not chain[:-1]:
        return path, definitions_of(tree, chain[-1])
    own = _found(tree_of, path, tuple(chain[:-1]), set())
    holder = _holder(tree_of, own)
    if holder is not None and (found := definitions_of(holder, chain[-1])):
        return own.path, found
    for place in _order(tree_of, own, (), {}):
        holder = _holder(tree_of, place)
        if holder is None:
            if place.names[-1] in _WITHOUT_TESTS:
                continue
            break
        found = definitions_of(holder, chain[-1])
        if found:
            return place.path, found
        if chain[-1] in _assigned(holder):
            break
    return path, []


def rewritten(original: CodebaseState, buggy: CodebaseState, state: CodebaseState, tests: Collection[str]) -> list[str]:
    """Return those tests that are written in files of code, that a state has otherwise, and that the bug left alone.

    Otherwise is also what only names them in code: assigned anew, taken from elsewhere, in a class with a decorator.
    """
    before, after, usual = _trees(buggy), _trees(state), _trees(original)
    paths = (p for p in {*buggy.changes, *state.changes} if p.endswith(".py"))
    changed = [p for p in paths if state.entry(p) not in (buggy.entry(p), original.entry(p))]
    found = []
    for test in sorted({i.partition("[")[0] for i in tests}):
        path, *chain = test.split("::")
        home, definitions = _anywhere(usual, path, chain)
        if not definitions or is_test_surface(home):
            continue
        try:
            name, holders = definitions[0].name, _around(usual(home), definitions[0])
            same = _said(usual(home), name, holders) == _said(before(home), name, holders)
            if same and any(_said(before(p), name, holders) != _said(after(p), name, holders) for p in changed):
                found.append(test)
        except RecursionError:
            found.append(test)
    return found


def _around(tree: ast.Module | None, inner: ast.AST) -> frozenset[str]:
    """Return the names of the classes around a definition."""
    classes = (n for n in (ast.walk(tree) if tree is not None else ()) if isinstance(n, ast.ClassDef))
    return frozenset(c.name for c in classes if any(n is inner for n in ast.walk(c)))


def _said(tree: ast.Module | None, name: str, holders: Collection[str]) -> list[str]:
    """Return what a file has under a function's name, and how it makes the classes around it; sorted."""
    found = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found.append(ast.dump(node))
        elif isinstance(node, ast.ClassDef) and node.name in holders:
            found += [f"class {node.name}", *(ast.dump(d) for d in (*node.decorator_list, *node.keywords))]
        elif isinstance(node, ast.alias) and name in (node.name, node.asname):
            found.append(ast.dump(node))
        elif name in (getattr(node, "id", None), getattr(node, "attr", None), _text_in(node)):
            found.append(type(node).__name__)
    return sorted(found)


def _text_in(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _trees(state: CodebaseState) -> Callable[[str], ast.Module | None]:
    @functools.cache
    def tree_of(path: str) -> ast.Module | None:
        entry = state.entry(path) if path.endswith(".py") else None
        return parsed(entry.data) if entry is not None else None

    return tree_of


def _anywhere(
    tree_of: Callable[[str], ast.Module | None], path: str, chain: Sequence[str]
) -> tuple[str, list[Definition]]:
    """Do as `_written_in`, and find test functions that are imported as well."""
    home, found = _written_in(tree_of, path, chain) if chain else (path, [])
    return (home, found) if found or len(chain) != 1 else _function(tree_of, path, chain[0], set())


def _function(
    tree_of: Callable[[str], ast.Module | None], path: str, name: str, seen: set[tuple[str, str]]
) -> tuple[str, list[Definition]]:
    tree = tree_of(path)
    if tree is None or (path, name) in seen:
        return path, []
    seen.add((path, name))
    if found := definitions_of(tree, name):
        return path, found
    for file, names in _imported(tree_of, path, tree, (name,)):
        if len(names) == 1:
            home, found = _function(tree_of, file, names[0], seen)
            if found:
                return home, found
    return path, []


class _Class(NamedTuple):
    """A class by its file and the names that lead to it; without a file: one that is not found."""

    path: str
    names: tuple[str, ...]


def _holder(tree_of: Callable[[str], ast.Module | None], place: _Class) -> ast.ClassDef | None:
    tree = tree_of(place.path) if place.path else None
    return find_class(tree, place.names) if tree is not None else None


def _order(
    tree_of: Callable[[str], ast.Module | None],
    place: _Class,
    below: tuple[_Class, ...],
    known: dict[_Class, Sequence[_Class]],
) -> Sequence[_Class]:
    """Return a class and its bases in the order in which Python looks for a method (C3)."""
    if place not in known:
        known[place] = _ordered(tree_of, place, below, known)
    return known[place]


def _ordered(
    tree_of: Callable[[str], ast.Module | None],
    place: _Class,
    below: tuple[_Class, ...],
    known: dict[_Class, Sequence[_Class]],
) -> Sequence[_Class]:
    holder = _holder(tree_of, place)
    if holder is None or len(below) >= _DEEPEST:
        return [place]
    bases = [_found(tree_of, place.path, _dotted(base), set()) for base in holder.bases]
    bases = [base for base in bases if base not in (*below, place)]
    waiting = [[*_order(tree_of, base, (*below, place), known)] for base in bases] + [bases]
    order = [place]
    while waiting := [line for line in waiting if line]:
        heads = (line[0] for line in waiting)
        # Python has no class without a head that fits; any will do then.
        head = next((h for h in heads if not any(h in line[1:] for line in waiting)), waiting[0][0])
        order.append(head)
        waiting = [[place for place in line if place != head] for line in waiting]
    return order


def _found(tree_of: Callable[[str], ast.Module | None], path: str, names: tuple[str, ...], seen: set[_Class]) -> _Class:
    """Return the class that names in a file stand for; seen: where it was looked for in vain."""
    place = _Class(path, names)
    tree = tree_of(path)
    if tree is None or not names or place in seen:
        return _Class("", names or ("",))
    if find_class(tree, names) is not None:
        return place
    seen.add(place)
    for file, inner in _imported(tree_of, path, tree, names):
        found = _found(tree_of, file, inner, seen)
        if found.path:
            return found
    return _Class("", names)


def _assigned(holder: ast.ClassDef) -> set[str]:
    """Return the names that a class body gives to what is no function."""
    stored = (n for s in holder.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name.id for name in stored}


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of `a.b.C` and of `a.b.C[T]`; none for another expression."""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Name):
        return (node.id,)
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ()
    return (*inner, node.attr) if inner and isinstance(node, ast.Attribute) else ()


def _imported(
    tree_of: Callable[[str], ast.Module | None], path: str, tree: ast.Module, names: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield files and names there that names in a file may stand for by its imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = tuple(alias.name.split("."))
                bound = (alias.asname,) if alias.asname else module
                if names[: len(bound)] == bound:
                    yield from _in_module(tree_of, path, 0, module, names[len(bound) :])
        elif isinstance(node, ast.ImportFrom):
            module = tuple((node.module or "").split(".")) if node.module else ()
            for alias in node.names:
                if alias.name == "*":
                    yield from _in_module(tree_of, path, node.level, module, names)
                elif names[0] == (alias.asname or alias.name):
                    yield from _in_module(tree_of, path, node.level, module, (alias.name, *names[1:]))
                    yield from _in_module(tree_of, path, node.level, (*module, alias.name), names[1:])


def _in_module(
    tree_of: Callable[[str], ast.Module | None], path: str, level: int, module: tuple[str, ...], names: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not names:
        return
    above = list(PurePosixPath(path).parents)
    roots = above[level - 1 : level] if level else [*above, PurePosixPath("src")]
    for root in roots:
        place = root.joinpath(*module)
        for file in (place / "__init__.py", place.with_suffix(".py") if module else place):
            if tree_of(str(file)) is not None:
                yield str(file), names
