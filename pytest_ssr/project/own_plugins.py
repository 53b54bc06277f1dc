"""Find the pytest plugins that a project itself provides: their code is what its tests are for.

A plugin is provided by an entry point of the group `pytest11`: in `pyproject.toml`, `setup.cfg` or `setup.py`, or in
the `entry_points.txt` of an installation in the tree.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.project.snapshot import Snapshot

_GROUP = "pytest11"
_ENTRY = re.compile(r"""["']\s*[\w.-]+\s*=\s*([\w.]+)""")


def without_own_plugins(snapshot: Snapshot, paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of the modules that pytest has loaded that are not part of a plugin that the project provides."""
    packages = frozenset(_own_packages(snapshot))
    return tuple(p for p in paths if packages.isdisjoint(_module_names(p)))


def _module_names(path: str) -> Iterator[str]:
    posix = PurePosixPath(path)
    yield from posix.parent.parts
    yield posix.stem


def _own_packages(snapshot: Snapshot) -> Iterator[str]:
    """Yield the top-level packages and modules of the project's own plugins."""
    for value in (*_of_pyproject(snapshot), *_of_ini_files(snapshot), *_of_setup(snapshot)):
        module = value.partition(":")[0].strip()
        if module:
            yield module.partition(".")[0]


def _of_pyproject(snapshot: Snapshot) -> Iterator[str]:
    if "pyproject.toml" not in snapshot.files:
        return
    try:
        data: Any = tomllib.loads(snapshot.read("pyproject.toml").decode())
    except ValueError:
        # pytest reports it.
        return
    for path in (("project", "entry-points"), ("tool", "poetry", "plugins")):
        table = data
        for name in (*path, _GROUP):
            table = table.get(name) if isinstance(table, dict) else None
        if isinstance(table, dict):
            yield from (value for value in table.values() if isinstance(value, str))


def _of_setup(snapshot: Snapshot) -> Iterator[str]:
    """Yield the entry points in the text of `setup.py`, which is not run."""
    if "setup.py" in snapshot.files:
        group = snapshot.read("setup.py").decode("utf-8", "replace").partition(_GROUP)[2]
        yield from _ENTRY.findall(group.partition("]")[0])


def _of_ini_files(snapshot: Snapshot) -> Iterator[str]:
    files = [(p, _GROUP, "") for p in snapshot.files if p.endswith(".egg-info/entry_points.txt")]
    files += [("setup.cfg", "options.entry_points", _GROUP)] if "setup.cfg" in snapshot.files else []
    for path, section, option in files:
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        try:
            parser.read_string(snapshot.read(path).decode("utf-8", "replace"))
        except configparser.Error:
            continue
        if not parser.has_section(section):
            continue
        lines = parser.get(section, option, fallback="").splitlines() if option else list(_lines(parser, section))
        yield from (value for line in lines if (value := line.partition("=")[2].strip()))


def _lines(parser: configparser.RawConfigParser, section: str) -> Iterator[str]:
    yield from (f"{name}={value}" for name, value in parser.items(section))
