"""Move tests to other names, so that code which looks for them or for pytest's configuration does not find them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState

_TEST_FOLDERS = frozenset(("test", "testing", "tests"))
_SYMLINK = 0o120000


def move_tests(state: CodebaseState, files: Collection[str], name: str) -> tuple[CodebaseState, Mapping[str, str]]:
    """Return the state with its tests moved, and the new path of each of the files.

    The folder of tests that a file is in is renamed as a whole, since tests may read what is beside them; a file that
    is in none is renamed alone. The configuration in the top folder is removed. name: the new name of the folders, and
    the beginning of the new names of the files.
    """
    folders = {folder for path in files if (folder := _test_folder(path))}
    changes: dict[str, FileEntry | None] = {}
    new_paths: dict[str, str] = {}
    for path in {*state.snapshot.files, *state.changes}:
        folder = _test_folder(path)
        new = PurePosixPath(path)
        if folder in folders:
            new = PurePosixPath(folder).parent / name / new.relative_to(folder)
        elif path not in files:
            if "/" not in path and path != "conftest.py" and is_test_surface(path):
                changes[path] = None
            continue
        entry = state.entry(path)
        if path in files:
            new = new.with_name(f"{name}_{len(new_paths)}.py")
            new_paths[path] = str(new)
        if entry is not None and entry.mode != _SYMLINK:
            changes |= {path: None, str(new): entry}
    return state.replace(changes), new_paths


def _test_folder(path: str) -> str:
    """Return the outermost folder of tests that a file is in; an empty string if it is in none."""
    folders = [str(f) for f in PurePosixPath(path).parents if f.name in _TEST_FOLDERS]
    return folders[-1] if folders else ""
