"""Where a test method is written: in its class, in a base of that, or in one that another file of tests holds."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.grading.suspicion import parsed
from pytest_ssr.surface import is_test_surface
from pytest_ssr.weakening.definitions import definitions_of, find_class
from pytest_ssr.weakening.text import Definition

_DEEPEST = 20
_WITHOUT_TESTS = frozenset(("object", "ABC", "Generic", "Protocol", "TestCase", "IsolatedAsyncioTestCase"))


def tests_of(state: CodebaseState) -> Callable[[str], bytes | None]:
    """Return what gives the content of a Python file of the test surface, None for any other path."""

    def content(path: str) -> bytes | None:
        entry = state.entry(path) if path.endswith(".py") and is_test_surface(path) else None
        return entry.data if entry is not None else None

    return content


def written_in(
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
    for place in _order(tree_of, _found(tree_of, path, tuple(chain[:-1]), ()), ()):
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
    """Return those tests that are written in files of code, that a state has otherwise, and that the bug left alone."""
    trees = [_trees(s) for s in (original, buggy, state)]
    found = []
    for name in sorted({i.partition("[")[0] for i in tests}):
        path, *chain = name.split("::")
        home, definitions = _anywhere(trees[0], path, chain)
        if definitions and not is_test_surface(home):
            before, after = ([ast.dump(d) for d in _anywhere(tree_of, path, chain)[1]] for tree_of in trees[1:])
            if before == [ast.dump(d) for d in definitions] != after:
                found.append(name)
    return found


def _trees(state: CodebaseState) -> Callable[[str], ast.Module | None]:
    @functools.cache
    def tree_of(path: str) -> ast.Module | None:
        entry = state.entry(path) if path.endswith(".py") else None
        return parsed(entry.data) if entry is not None else None

    return tree_of


def _anywhere(
    tree_of: Callable[[str], ast.Module | None], path: str, chain: Sequence[str]
) -> tuple[str, list[Definition]]:
    """Do as `written_in`, and find test functions that are imported as well."""
    home, found = written_in(tree_of, path, chain) if chain else (path, [])
    tree = tree_of(path)
    if found or len(chain) != 1 or tree is None:
        return home, found
    for file, names in _imported(tree_of, path, tree, tuple(chain)):
        holder = tree_of(file)
        if holder is not None and len(names) == 1 and (found := definitions_of(holder, names[0])):
            return file, found
    return path, []


class _Class(NamedTuple):
    """A class by its file and the names that lead to it; without a file: one that is not found."""

    path: str
    names: tuple[str, ...]


def _holder(tree_of: Callable[[str], ast.Module | None], place: _Class) -> ast.ClassDef | None:
    tree = tree_of(place.path) if place.path else None
    return find_class(tree, place.names) if tree is not None else None


def _order(tree_of: Callable[[str], ast.Module | None], place: _Class, below: tuple[_Class, ...]) -> Sequence[_Class]:
    """Return a class and its bases in the order in which Python looks for a method (C3)."""
    holder = _holder(tree_of, place)
    if holder is None or len(below) >= _DEEPEST:
        return [place]
    bases = [_found(tree_of, place.path, _dotted(base), ()) for base in holder.bases]
    bases = [base for base in bases if base not in (*below, place)]
    waiting = [[*_order(tree_of, base, (*below, place))] for base in bases] + [bases]
    order = [place]
    while waiting := [line for line in waiting if line]:
        heads = (line[0] for line in waiting)
        # Python has no class without a head that fits; any will do then.
        head = next((h for h in heads if not any(h in line[1:] for line in waiting)), waiting[0][0])
        order.append(head)
        waiting = [[place for place in line if place != head] for line in waiting]
    return order


def _found(
    tree_of: Callable[[str], ast.Module | None], path: str, names: tuple[str, ...], seen: tuple[_Class, ...]
) -> _Class:
    """Return the class that names in a file stand for."""
    place = _Class(path, names)
    tree = tree_of(path)
    if tree is None or not names or place in seen:
        return _Class("", names or ("",))
    if find_class(tree, names) is not None:
        return place
    for file, inner in _imported(tree_of, path, tree, names):
        found = _found(tree_of, file, inner, (*seen, place))
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
