"""Start pytest for the hooks of its plugins alone: no tests are collected, and nothing is configured."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.errors import SettingsError
from pytest_ssr.extensions import Extensions

_OWN = "ssr"
"""The entry point of our plugin, which declares the hooks."""
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_MOST_CHARS = 300
"""Length of the cause in a message: some of pytest's errors list all plugins."""


def extensions_of_config(config: pytest.Config) -> Extensions:
    """Return what the plugins of a session add."""
    return Extensions(partial(_call_hook, config))


def extensions_of_plugins(plugins: Sequence[str], project: Path, *, conftest: bool) -> Extensions:
    """Start pytest with plugins of these names, and return what they add; raises SettingsError if that fails.

    conftest: as in a session in the project, with its conftest.py, its configuration (but not its `addopts`) and all
    installed plugins. Otherwise nothing of the project is read.
    """
    arguments = ["--rootdir", str(project), "-s"]
    for name in (_OWN, *plugins):
        arguments += ["-p", name]
    if conftest:
        arguments += ["-o", "addopts=", "-p", "no:cacheprovider", str(_conftest_of(project))]
    else:
        arguments += ["--noconftest", "-c", os.devnull]
    taken, output = _TakenConfig(), io.StringIO()
    # What plugins print must not get into the output of a command.
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), _autoload(conftest):
        try:
            pytest.main(arguments, plugins=[taken])
        except (Exception, SystemExit) as error:
            raise _failure(f"{type(error).__name__}: {error}") from error
    if taken.config is None:
        lines = [line.strip() for line in output.getvalue().splitlines() if line.strip()]
        raise _failure(lines[-1].removeprefix("E ").strip() if lines else "pytest gave no reason")
    if output.getvalue():
        print(output.getvalue(), end="", file=sys.stderr)
    return extensions_of_config(taken.config)


class _TakenConfig:
    """Takes the configuration of pytest, and ends the session before it is configured."""

    config: pytest.Config | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Return 0, so that no other plugin runs the session."""
        self.config = config
        return 0


def _call_hook(config: pytest.Config, name: str, **arguments: object) -> list[Any]:
    results: list[Any] = getattr(config.hook, name)(config=config, **arguments)
    return results


def _conftest_of(project: Path) -> Path:
    path = project / "conftest.py"
    if not path.is_file():
        raise SettingsError(f"--conftest: {path} does not exist", option="conftest")
    return path


def _failure(cause: str) -> SettingsError:
    shown = " ".join(cause.split())
    if len(shown) > _MOST_CHARS:
        shown = f"{shown[:_MOST_CHARS]}..."
    return SettingsError(f"the plugins of pytest cannot be loaded: {shown}")


@contextlib.contextmanager
def _autoload(is_on: bool) -> Iterator[None]:
    """Let pytest load installed plugins by itself, or not."""
    before = os.environ.get(_NO_AUTOLOAD)
    if not is_on:
        os.environ[_NO_AUTOLOAD] = "1"
    try:
        yield
    finally:
        if not is_on:
            os.environ.pop(_NO_AUTOLOAD, None)
            if before is not None:
                os.environ[_NO_AUTOLOAD] = before
