"""Find what installed plugins of pytest, and a project's conftest.py if asked for, add to the commands of `ssr`.

Only plugins whose package depends on pytest-ssr are loaded: others cannot use its hooks, and would cost time.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import entry_points
from pathlib import Path

from pytest_ssr.extensions import Extensions

_GROUP = "pytest11"
_OURS = "pytest-ssr"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PLUGINS_VARIABLE = "PYTEST_PLUGINS"
"""Names further modules, as for pytest itself."""


def load_extensions(project: Path = Path(), *, conftest: bool = False) -> Extensions:
    """Return what plugins add; raises SettingsError if one of them cannot be loaded.

    project: the root directory that plugins see. conftest: also run the project's conftest.py, outside of any sandbox.
    """
    names = _plugin_names()
    if not names and not conftest and not os.environ.get(_PLUGINS_VARIABLE):
        return Extensions()
    # It imports pytest, which most commands do not need.
    from pytest_ssr.plugin.session_without_tests import extensions_of_plugins

    return extensions_of_plugins(names, project, conftest=conftest)


def _plugin_names() -> list[str]:
    """Return the names of installed plugins of pytest whose package depends on this one, sorted."""
    names = []
    for entry in entry_points(group=_GROUP):
        required = entry.dist.requires if entry.dist is not None else None
        if any(_package_of(requirement) == _OURS for requirement in required or ()):
            names.append(entry.name)
    return sorted(names)


def _package_of(requirement: str) -> str:
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match is not None else ""
