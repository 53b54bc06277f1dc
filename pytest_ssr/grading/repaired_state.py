"""Build the state that is graded: the original with the bug, the weakening and the patch, and with restored tests."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath

from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import Patch
from pytest_ssr.project.file_roles import is_test_surface, old_copies, shadows
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.test_run import abbreviate
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


_COMPILED_SUFFIXES = frozenset((".pyc", ".pyo", ".pyd", ".so", ".dll", ".dylib"))
_NATIVE_MAGIC = (
    b"\x7fELF",
    b"MZ",
    *(bytes.fromhex(number) for number in ("feedface", "feedfacf", "cefaedfe", "cffaedfe", "cafebabe")),
)
_BYTECODE_NUMBERS = range(3000, 4000)
"""Magic numbers of CPython 3's bytecode files; a carriage return and a newline follow (PEP 3147, importlib)."""


def unsolved_state(runner: Runner, artifact: BugArtifact) -> CodebaseState:
    """Return the state that solvers see, to which their patches apply: the original with the bug and the weakening."""
    return runner.original.apply(artifact.bug).apply(artifact.weaken)


def repaired_state(
    runner: Runner, artifact: BugArtifact, patch: Patch, loaded: Collection[str] = ()
) -> tuple[CodebaseState, tuple[str, ...]]:
    """Return the state to grade, and the paths of the patch that are dropped because they belong to the tests.

    loaded: files that pytest loads for the tests. Raises ArtifactError when the rest of the patch does not apply to the
    weakened state.
    """
    oracle = set(artifact.test_files)
    changed = {p for diff in (patch, artifact.bug, artifact.weaken) for p in diff.paths}
    # What the bug changes is code, whatever its folder is called, as in django/test.
    own = {p for p in changed if is_test_surface(p) or p in loaded}
    surface = oracle | own.difference(artifact.bug.paths)
    surface |= shadowing(runner.original, changed, artifact.test_files)
    dropped = tuple(p for p in patch.paths if p in surface)
    applied = patch.select([p for p in patch.paths if p not in dropped])
    state = unsolved_state(runner, artifact).apply(applied)
    state = state.restore({p for p in state.changes if p in surface})
    readable = {str(folder) for path in runner.interpreter.readable for folder in (path, *path.parents)}
    if blocked := [p for p in applied.paths if str(runner.snapshot.origin / p) in readable]:
        raise ArtifactError(f"{abbreviate(blocked)} cannot be written: the interpreter's folder is there")
    # Solvers do not get these files, and a patch must not read the original code from them.
    return state.replace(dict.fromkeys(old_copies(runner.snapshot.files))), dropped


def compiled_code(state: CodebaseState, paths: Iterable[str]) -> list[str]:
    """Return the paths at which a state, unlike the original, holds code that cannot be read as source, sorted.

    Such code is recognized by the name or the first bytes of the file; other binary files are data.
    """
    matches = []
    for path in paths:
        entry = state.changes.get(path)
        if entry is not None and (_has_compiled_name(path) or _is_compiled(entry.data)):
            matches.append(path)
    return sorted(matches)


def _has_compiled_name(path: str) -> bool:
    # libexample.so.1.2 is a shared library as well.
    return not _COMPILED_SUFFIXES.isdisjoint(PurePosixPath(path.lower()).suffixes)


def _is_compiled(data: bytes) -> bool:
    is_bytecode = data[2:4] == b"\r\n" and int.from_bytes(data[:2], "little") in _BYTECODE_NUMBERS
    return is_bytecode or (data.startswith(_NATIVE_MAGIC) and b"\0" in data[:64])
