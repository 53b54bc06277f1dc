"""Which new files would be imported in the place of modules that tests use: they are no part of the code."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.grading.parsing import parsed
from pytest_ssr.surface import shadows


def shadowing(original: CodebaseState, paths: Iterable[str], test_files: Collection[str]) -> frozenset[str]:
    """Return those of the paths that shadow what the original's tests or pytest itself import from elsewhere."""
    files = original.snapshot.files
    new = [path for path in paths if path not in files]
    if not new:
        return frozenset()
    entries = [original.entry(p) for p in test_files if p.endswith(".py")]
    known = {name for e in entries if e is not None for name in _imported(parsed(e.data))}
    return shadows(new, files, known)


def _imported(tree: ast.Module | None) -> Iterator[str]:
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
