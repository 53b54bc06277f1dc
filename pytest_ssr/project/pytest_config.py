"""Give pytest the same root and configuration for any selection of test files."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import PurePosixPath

from pytest_ssr.project.file_roles import is_test_file
from pytest_ssr.project.snapshot import Snapshot

_TOP = PurePosixPath(".")
# In pytest's own order.
_CONFIGURATION = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_ROOT_MARKERS = frozenset((*_CONFIGURATION, "setup.py"))
_OPTION_COUNT = 4
IDENTITIES = "ssr_identities"
"""The guest module that names parameter sets by position."""
_BY_POSITION = "ssr_by_position="
_ALL = "*"
_MOST_ARGUMENT_BYTES = 100_000
_GIVEN = re.compile(rb" -p ssr_lines -o addopts= (.*?) \\\n  -v --tb=short ", re.DOTALL)


def root_options(snapshot: Snapshot, tests: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options that make pytest use, for some test files, the same root as for all of them.

    tests: the arguments of a whole run; empty if it has none. Options are needed only if a folder below the top has
    both tests and its own configuration: given only files from there, pytest would use that folder as the root, and
    its tests would have other ids than in a whole run.
    """
    roots = {path.parent for path in map(PurePosixPath, snapshot.files) if path.name in _ROOT_MARKERS}
    roots.discard(_TOP)
    test_files = (PurePosixPath(p) for p in snapshot.files if p.endswith(".py") and is_test_file(p))
    if not roots or not any(roots.intersection(p.parents) for p in test_files):
        return ()
    config = next((p for p in _config_files(snapshot, tests) if _configures_pytest(snapshot, p)), None)
    if config is None:
        # A project file without a section for pytest is better than none.
        config = next((p for p in _config_files(snapshot, tests) if p.name == "pyproject.toml"), None)
    return "--rootdir=.", "-c", str(config or "/dev/null"), "--confcutdir=."


def position_options(functions: Sequence[str]) -> tuple[str, ...]:
    """Return the options that make runs name the parameter sets of these functions by position.

    If their names are longer than an argument may be, those of all functions are named so.
    """
    if not functions:
        return ()
    names = "\n".join(functions)
    return "-p", IDENTITIES, "-o", _BY_POSITION + (names if len(names.encode()) <= _MOST_ARGUMENT_BYTES else _ALL)


def options_of_script(script: bytes) -> tuple[str, ...]:
    """Return the options of `root_options` and `position_options` in a script made by this package.

    The result is empty if it has none of them, and for any other script.
    """
    match = _GIVEN.search(script)
    try:
        options = shlex.split(match[1].decode("utf-8", "surrogateescape")) if match else []
    except ValueError:
        options = []
    roots = options[:_OPTION_COUNT]
    own = tuple(roots) if roots[:2] == ["--rootdir=.", "-c"] and roots[3:] == ["--confcutdir=."] else ()
    rest = options[len(own) :]
    positions = rest[:_OPTION_COUNT]
    if positions[:3] == ["-p", IDENTITIES, "-o"] and positions[3:] and positions[3].startswith(_BY_POSITION):
        own += tuple(positions)
    return own


def _config_files(snapshot: Snapshot, tests: Sequence[str]) -> list[PurePosixPath]:
    """Return the files that may be the configuration, in pytest's order."""
    paths = [PurePosixPath(t.partition("::")[0]) for t in tests]
    above = [[*reversed(p.parents), *([] if str(p) in snapshot.files or p == _TOP else [p])] for p in paths]
    shared = [steps[0] for steps in zip(*above, strict=False) if len(set(steps)) == 1] if above else [_TOP]
    files = (folder / name for folder in reversed(shared) for name in _CONFIGURATION)
    return [path for path in files if str(path) in snapshot.files]


def _configures_pytest(snapshot: Snapshot, path: PurePosixPath) -> bool:
    """Return whether a file configures pytest; true if it cannot be parsed, so that pytest reports the error."""
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
