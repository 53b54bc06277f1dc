"""One root and one configuration for pytest, whichever files it is given."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import PurePosixPath

from pytest_ssr.snapshot import Snapshot
from pytest_ssr.surface import is_test_file

_TOP = PurePosixPath(".")
# In pytest's own order.
_CONFIGURATION = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_MARKS_A_ROOT = frozenset((*_CONFIGURATION, "setup.py"))
_WORDS = 4
_OWN = re.compile(rb" (--rootdir=\. -c [^\n]+? --confcutdir=\.) ")


def root_options(snapshot: Snapshot, tests: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options with which pytest takes for some test files the root that it takes for all of them.

    tests: what a whole run gives to pytest; none: nothing. There are no such options but where a folder below the top
    has both tests and configuration of its own: given only files from there, pytest would take that folder for the
    root, and call its tests by other ids than in a whole run.
    """
    roots = {path.parent for path in map(PurePosixPath, snapshot.files) if path.name in _MARKS_A_ROOT}
    roots.discard(_TOP)
    known = (PurePosixPath(p) for p in snapshot.files if p.endswith(".py") and is_test_file(p))
    if not roots or not any(roots.intersection(p.parents) for p in known):
        return ()
    found = next((p for p in _folders(snapshot, tests) if _holds(snapshot, p)), None)
    if found is None:
        # A project file without a word on pytest is better than none.
        found = next((p for p in _folders(snapshot, tests) if p.name == "pyproject.toml"), None)
    return "--rootdir=.", "-c", str(found or "/dev/null"), "--confcutdir=."


def root_of(script: bytes) -> tuple[str, ...]:
    """Return these options of a script of ours; none where it has none, or is not ours."""
    found = _OWN.search(script)
    try:
        words = shlex.split(found[1].decode("utf-8", "surrogateescape")) if found else []
    except ValueError:
        words = []
    return tuple(words) if len(words) == _WORDS else ()


def _folders(snapshot: Snapshot, tests: Sequence[str]) -> list[PurePosixPath]:
    """Return the files that may be the configuration, in the order in which pytest looks at them."""
    places = [PurePosixPath(t.partition("::")[0]) for t in tests]
    above = [[*reversed(p.parents), *([] if str(p) in snapshot.files or p == _TOP else [p])] for p in places]
    shared = [steps[0] for steps in zip(*above, strict=False) if len(set(steps)) == 1] if above else [_TOP]
    files = (folder / name for folder in reversed(shared) for name in _CONFIGURATION)
    return [path for path in files if str(path) in snapshot.files]


def _holds(snapshot: Snapshot, path: PurePosixPath) -> bool:
    """Tell whether a file configures pytest; one that cannot be read is pytest's to complain about."""
    if path.name.removeprefix(".").startswith("pytest."):
        return True
    text = snapshot.read(str(path)).decode("utf-8", "replace")
    try:
        if path.suffix == ".toml":
            return "pytest" in tomllib.loads(text).get("tool", {})
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        parser.read_string(text)
        return parser.has_section("pytest" if path.name == "tox.ini" else "tool:pytest")
    except (ValueError, configparser.Error, AttributeError, TypeError):
        return True
