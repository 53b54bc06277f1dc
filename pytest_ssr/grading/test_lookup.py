"""Find where a test method is written: in its class, in a base class, or in a class of another test file."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.definitions import definitions_of, find_class
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.spans import Definition

_MAX_DEPTH = 20
_CLASSES_WITHOUT_TESTS = frozenset(("object", "ABC", "Generic", "Protocol", "TestCase", "IsolatedAsyncioTestCase"))


def _locate_method(
    tree_of: Callable[[str], ast.Module | None], path: str, chain: Sequence[str]
) -> tuple[str, list[Definition]]:
    """Return the file in which a test is written and its definitions there; no definitions if it is not found.

    tree_of: returns the syntax tree of a file by its relative path, or None if it is not a test file. chain: the names
    that lead to the test in the file at `path`: its classes, then its own.
    """
    tree = tree_of(path)
    if tree is None:
        return path, []
    if not chain[:-1]:
        return path, definitions_of(tree, chain[-1])
    own = _resolve_class(tree_of, path, tuple(chain[:-1]), set())
    holder = _class_node(tree_of, own)
    if holder is not None and (definitions := definitions_of(holder, chain[-1])):
        return own.path, definitions
    for base in _resolution_order(tree_of, own, (), {}):
        holder = _class_node(tree_of, base)
        if holder is None:
            if base.names[-1] in _CLASSES_WITHOUT_TESTS:
                continue
            break
        definitions = definitions_of(holder, chain[-1])
        if definitions:
            return base.path, definitions
        if chain[-1] in _assigned_names(holder):
            break
    return path, []


def rewritten(original: CodebaseState, buggy: CodebaseState, state: CodebaseState, tests: Collection[str]) -> list[str]:
    """Return the tests in code files that a state changes and that the bug does not change, sorted.

    Indirect changes count as well: reassigning a test, importing it from elsewhere, or decorating its class.
    """
    before, after, usual = _trees(buggy), _trees(state), _trees(original)
    paths = (p for p in {*buggy.changes, *state.changes} if p.endswith(".py"))
    changed = [p for p in paths if state.entry(p) not in (buggy.entry(p), original.entry(p))]
    matches = []
    for test in sorted({i.partition("[")[0] for i in tests}):
        path, *chain = test.split("::")
        home, definitions = _locate_test(usual, path, chain)
        if not definitions or is_test_surface(home):
            continue
        try:
            name, holders = definitions[0].name, _enclosing_classes(usual(home), definitions[0])
            same = _uses_of(usual(home), name, holders) == _uses_of(before(home), name, holders)
            if same and any(_uses_of(before(p), name, holders) != _uses_of(after(p), name, holders) for p in changed):
                matches.append(test)
        except RecursionError:
            matches.append(test)
    return matches


def _enclosing_classes(tree: ast.Module | None, inner: ast.AST) -> frozenset[str]:
    """Return the names of the classes around a definition."""
    classes = (n for n in (ast.walk(tree) if tree is not None else ()) if isinstance(n, ast.ClassDef))
    return frozenset(c.name for c in classes if any(n is inner for n in ast.walk(c)))


def _uses_of(tree: ast.Module | None, name: str, holders: Collection[str]) -> list[str]:
    """Return a file's uses of a function's name, and the declarations of the classes around it; sorted."""
    uses = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            uses.append(ast.dump(node))
        elif isinstance(node, ast.ClassDef) and node.name in holders:
            uses += [f"class {node.name}", *(ast.dump(d) for d in (*node.decorator_list, *node.keywords))]
        elif isinstance(node, ast.alias) and name in (node.name, node.asname):
            uses.append(ast.dump(node))
        elif name in (getattr(node, "id", None), getattr(node, "attr", None), _string_of(node)):
            uses.append(type(node).__name__)
    return sorted(uses)


def _string_of(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _trees(state: CodebaseState) -> Callable[[str], ast.Module | None]:
    @functools.cache
    def tree_of(path: str) -> ast.Module | None:
        entry = state.entry(path) if path.endswith(".py") else None
        return parse_module(entry.data) if entry is not None else None

    return tree_of


def _locate_test(
    tree_of: Callable[[str], ast.Module | None], path: str, chain: Sequence[str]
) -> tuple[str, list[Definition]]:
    """Return the same as `_locate_method`, but find imported test functions as well."""
    home, definitions = _locate_method(tree_of, path, chain) if chain else (path, [])
    return (home, definitions) if definitions or len(chain) != 1 else _locate_function(tree_of, path, chain[0], set())


def _locate_function(
    tree_of: Callable[[str], ast.Module | None], path: str, name: str, seen: set[tuple[str, str]]
) -> tuple[str, list[Definition]]:
    tree = tree_of(path)
    if tree is None or (path, name) in seen:
        return path, []
    seen.add((path, name))
    if definitions := definitions_of(tree, name):
        return path, definitions
    for file, names in _imported(tree_of, path, tree, (name,)):
        if len(names) == 1:
            home, definitions = _locate_function(tree_of, file, names[0], seen)
            if definitions:
                return home, definitions
    return path, []


class _ClassPath(NamedTuple):
    """A class, by its file and the names that lead to it; the file is empty if the class is not found."""

    path: str
    names: tuple[str, ...]


def _class_node(tree_of: Callable[[str], ast.Module | None], cls: _ClassPath) -> ast.ClassDef | None:
    tree = tree_of(cls.path) if cls.path else None
    return find_class(tree, cls.names) if tree is not None else None


def _resolution_order(
    tree_of: Callable[[str], ast.Module | None],
    cls: _ClassPath,
    subclasses: tuple[_ClassPath, ...],
    orders: dict[_ClassPath, Sequence[_ClassPath]],
) -> Sequence[_ClassPath]:
    """Return a class and its bases in method resolution order (C3)."""
    if cls not in orders:
        orders[cls] = _linearized(tree_of, cls, subclasses, orders)
    return orders[cls]


def _linearized(
    tree_of: Callable[[str], ast.Module | None],
    cls: _ClassPath,
    subclasses: tuple[_ClassPath, ...],
    orders: dict[_ClassPath, Sequence[_ClassPath]],
) -> Sequence[_ClassPath]:
    holder = _class_node(tree_of, cls)
    if holder is None or len(subclasses) >= _MAX_DEPTH:
        return [cls]
    bases = [_resolve_class(tree_of, cls.path, _dotted(base), set()) for base in holder.bases]
    bases = [base for base in bases if base not in (*subclasses, cls)]
    waiting = [[*_resolution_order(tree_of, base, (*subclasses, cls), orders)] for base in bases] + [bases]
    order = [cls]
    while waiting := [line for line in waiting if line]:
        heads = (line[0] for line in waiting)
        # Python rejects classes without a valid head, so any choice is fine in that case.
        head = next((h for h in heads if not any(h in line[1:] for line in waiting)), waiting[0][0])
        order.append(head)
        waiting = [[cls for cls in line if cls != head] for line in waiting]
    return order


def _resolve_class(
    tree_of: Callable[[str], ast.Module | None], path: str, names: tuple[str, ...], seen: set[_ClassPath]
) -> _ClassPath:
    """Return the class that names in a file refer to; seen: classes that were already searched without success."""
    cls = _ClassPath(path, names)
    tree = tree_of(path)
    if tree is None or not names or cls in seen:
        return _ClassPath("", names or ("",))
    if find_class(tree, names) is not None:
        return cls
    seen.add(cls)
    for file, inner in _imported(tree_of, path, tree, names):
        resolved = _resolve_class(tree_of, file, inner, seen)
        if resolved.path:
            return resolved
    return _ClassPath("", names)


def _assigned_names(holder: ast.ClassDef) -> set[str]:
    """Return the names that a class body assigns."""
    stored = (n for s in holder.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name.id for name in stored}


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of `a.b.C` and of `a.b.C[T]`; empty for any other expression."""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Name):
        return (node.id,)
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ()
    return (*inner, node.attr) if inner and isinstance(node, ast.Attribute) else ()


@functools.lru_cache(maxsize=64)
def _imports(tree: ast.Module) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return all import statements of a file."""
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _imported(
    tree_of: Callable[[str], ast.Module | None], path: str, tree: ast.Module, names: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the files, and the names in them, that names in a file may refer to through its imports."""
    for node in _imports(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = tuple(alias.name.split("."))
                bound = (alias.asname,) if alias.asname else module
                if names[: len(bound)] == bound:
                    yield from _in_module(tree_of, path, 0, module, names[len(bound) :])
        else:
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
        location = root.joinpath(*module)
        for file in (location / "__init__.py", location.with_suffix(".py") if module else location):
            if tree_of(str(file)) is not None:
                yield str(file), names
