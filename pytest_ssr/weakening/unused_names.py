"""Remove what only the removed tests used: fixtures, functions, constants and imports of the module.

Conservative: a name is kept if it still occurs anywhere in the file as a word, even in a string or a comment, or if
another test file mentions it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytest_ssr.source.spans import Lines, identifiers, read_lines, remove_elements, remove_statements
from pytest_ssr.source.syntax_tree import Edit, splice


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a piece of code mentions, parameters (that is, fixtures) and strings included."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.arg):
            yield part.arg
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            yield part.value


def clean_up(data: bytes, used: set[str], elsewhere: frozenset[str]) -> bytes:
    """Remove the module's own names among `used` that nothing mentions any more, until none is left.

    used: names that the removed code mentioned; extended in place. elsewhere: words of the other test files.
    """
    while True:
        lines = read_lines(data)
        if lines is None:
            return data
        for edits, mentioned in _removals(lines, used, elsewhere):
            try:
                candidate = splice(data, edits)
            except ValueError:
                continue
            if read_lines(candidate) is not None:
                data = candidate
                used |= mentioned
                break
        else:
            return data


def _removals(lines: Lines, used: set[str], elsewhere: frozenset[str]) -> Iterator[tuple[list[Edit], set[str]]]:
    for node in lines.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _unused_imports(lines, node, used)
            continue
        name = _defined(node)
        if (
            name is None
            or name not in used
            or name in elsewhere
            or name.startswith(("test", "Test", "pytest", "_pytest"))
        ):
            continue
        if any("autouse" in ast.dump(d) for d in getattr(node, "decorator_list", [])):
            continue
        edits = remove_statements(lines, [node])
        if edits is not None and name not in identifiers(splice(lines.data, edits)):
            yield edits, set(names_in(node))


def _defined(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _unused_imports(
    lines: Lines, node: ast.Import | ast.ImportFrom, used: set[str]
) -> Iterator[tuple[list[Edit], set[str]]]:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    whole = remove_statements(lines, [node])
    if whole is None:
        return
    rest = identifiers(splice(lines.data, whole))
    unused = [
        i
        for i, alias in enumerate(node.names)
        if (name := (alias.asname or alias.name).split(".")[0]) in used and name not in rest and name != "*"
    ]
    if len(unused) == len(node.names):
        yield whole, set()
    elif unused:
        yield remove_elements(lines, node.names, unused), set()
