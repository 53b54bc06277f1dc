"""Where a test method is written: in its class, in a base of that, or in one that another file of tests holds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.surface import is_test_surface
from pytest_ssr.weakening.definitions import definitions_of, find_class
from pytest_ssr.weakening.text import Definition

_MOST_CLASSES = 200


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
    waiting, seen = [(path, tuple(chain[:-1]))], set[tuple[str, tuple[str, ...]]]()
    while waiting and len(seen) < _MOST_CLASSES:
        place = waiting.pop(0)
        tree = tree_of(place[0])
        if tree is None or place in seen:
            continue
        seen.add(place)
        holder = find_class(tree, place[1])
        if holder is None:
            waiting += _imported(tree_of, place[0], tree, place[1])
            continue
        found = definitions_of(holder, chain[-1])
        if found:
            return place[0], found
        waiting += [(place[0], names) for base in holder.bases if (names := _dotted(base))]
    return path, []


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of `a.b.C`; none for another expression."""
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
