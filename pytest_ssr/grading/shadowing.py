"""Find new files that would be imported in place of modules that tests use.

Such files are not part of the code.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from pytest_ssr.project.file_roles import shadows
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.parsing import parse_module


def shadowing(original: CodebaseState, paths: Iterable[str], test_files: Collection[str]) -> frozenset[str]:
    """Return the paths that shadow modules which the original's tests or pytest itself import from elsewhere."""
    files = original.snapshot.files
    new = [path for path in paths if path not in files]
    if not new:
        return frozenset()
    entries = [original.entry(p) for p in test_files if p.endswith(".py")]
    imported = {name for e in entries if e is not None for name in _imported_modules(parse_module(e.data))}
    return shadows(new, files, imported)


def _imported_modules(tree: ast.Module | None) -> Iterator[str]:
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
