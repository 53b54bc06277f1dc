"""The state that is graded: the original with the bug, the weakening and the patch, and with the tests restored."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.shadows import shadowing
from pytest_ssr.outcomes import some
from pytest_ssr.patch import Patch
from pytest_ssr.surface import is_test_surface, old_copies

_COMPILED_SUFFIXES = frozenset((".pyc", ".pyo", ".pyd", ".so", ".dll", ".dylib"))
_NATIVE_MAGIC = (
    b"\x7fELF",
    b"MZ",
    *(bytes.fromhex(number) for number in ("feedface", "feedfacf", "cefaedfe", "cffaedfe", "cafebabe")),
)
_BYTECODE_NUMBERS = range(3000, 4000)
"""Magic numbers of CPython 3's compiled files; a carriage return and a newline follow (PEP 3147, importlib)."""


def repaired_state(bench: Workbench, artifact: BugArtifact, patch: Patch) -> tuple[CodebaseState, tuple[str, ...]]:
    """Return the state to grade and the paths of the patch that were dropped because they belong to the tests.

    Raises ArtifactError when the rest of the patch does not apply to the weakened state.
    """
    oracle = set(artifact.test_files)
    changed = {p for each in (patch, artifact.bug, artifact.weaken) for p in each.paths}
    surface = oracle | {p for p in changed if is_test_surface(p)}
    surface |= shadowing(bench.original, changed, artifact.test_files)
    dropped = tuple(p for p in patch.paths if p in surface)
    kept = patch.select([p for p in patch.paths if p not in dropped])
    state = bench.original.apply(artifact.bug).apply(artifact.weaken).apply(kept)
    state = state.restore({p for p in state.changes if p in surface})
    shown = {str(folder) for place in bench.interpreter.readable for folder in (place, *place.parents)}
    if over := [p for p in kept.paths if str(bench.snapshot.origin / p) in shown]:
        raise ArtifactError(f"{some(over)} cannot be written: the interpreter's folder is there")
    # Solvers are not given these, and a patch may not read in them how its code was.
    return state.replace(dict.fromkeys(old_copies(bench.snapshot.files))), dropped


def compiled_code(state: CodebaseState, paths: Iterable[str]) -> list[str]:
    """Return those of the paths at which a state holds code that cannot be read as source, and the original does not.

    Such code is recognized by the name or by the first bytes of the file; other binary files are data.
    """
    found = []
    for path in paths:
        entry = state.changes.get(path)
        if entry is not None and (_has_compiled_name(path) or _is_compiled(entry.data)):
            found.append(path)
    return sorted(found)


def _has_compiled_name(path: str) -> bool:
    # libexample.so.1.2 is a shared library, too.
    return not _COMPILED_SUFFIXES.isdisjoint(PurePosixPath(path.lower()).suffixes)


def _is_compiled(data: bytes) -> bool:
    is_bytecode = data[2:4] == b"\r\n" and int.from_bytes(data[:2], "little") in _BYTECODE_NUMBERS
    return is_bytecode or (data.startswith(_NATIVE_MAGIC) and b"\0" in data[:64])
