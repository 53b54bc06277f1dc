"""One root and one configuration for pytest, whichever files it is given."""

from __future__ import annotations

from pathlib import PurePosixPath

from pytest_ssr.snapshot import Snapshot
from pytest_ssr.surface import is_test_file

# In pytest's own order, with what a file must hold to count.
_CONFIGURATION = {
    "pytest.toml": b"",
    ".pytest.toml": b"",
    "pytest.ini": b"",
    ".pytest.ini": b"",
    "pyproject.toml": b"[tool.pytest",
    "tox.ini": b"[pytest]",
    "setup.cfg": b"[tool:pytest]",
}
_MARKS_A_ROOT = frozenset((*_CONFIGURATION, "setup.py"))


def root_options(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the options with which pytest takes for some test files the root that it takes for all of them.

    There are none but where a folder below the top has both tests and configuration of its own: given only files from
    there, pytest would take that folder for the root, and call its tests by other ids than in a whole run.
    """
    roots = {path.parent for path in map(PurePosixPath, snapshot.files) if path.name in _MARKS_A_ROOT}
    roots.discard(PurePosixPath("."))
    tests = (PurePosixPath(p) for p in snapshot.files if p.endswith(".py") and is_test_file(p))
    if not roots or not any(roots.intersection(p.parents) for p in tests):
        return ()
    held = (name for name, mark in _CONFIGURATION.items() if name in snapshot.files and mark in snapshot.read(name))
    return "--rootdir=.", "-c", next(held, "/dev/null"), "--confcutdir=."
