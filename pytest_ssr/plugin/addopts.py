"""Keep the project's `addopts` out of a session that injects, validates or solves.

They are written for the project's tests: coverage, durations, reports, selections, timeouts. The runs of the tests
inside sandboxes use them; the session around these runs would report about items that are not tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_ssr.options import PluginSettings, options_of

_XDIST = ("numprocesses", "maxprocesses", "dist", "tx")
_COVERAGE = "cov_source"
_WATCHDOGS = (("faulthandler", ""), ("timeout", "timeout"))
"""Plugins that watch how long a test takes, each with the option that asks for it on the command line."""


def drop_addopts(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Remove the `addopts` of the configuration file from the arguments, except xdist's and this package's own.

    PYTEST_ADDOPTS stays: it is the user's. The options have had their effect on which plugins are loaded, and still
    have it on the conftest files, which may need them (`--import-mode`, `--ds`).
    """
    addopts: list[str] = early_config.getini("addopts")
    # A worker of xdist gets its controller's options, and no addopts.
    if not addopts or args[: len(addopts)] != addopts:
        return
    del args[: len(addopts)]
    kept: Any = parser.parse_known_args(addopts)
    defaults: Any = parser.parse_known_args([])
    for name in (*_XDIST, *(f"ssr_{item.name}" for item, _ in options_of(PluginSettings))):
        if getattr(kept, name, None) != getattr(defaults, name, None):
            # The parser takes what is already there for the default.
            setattr(early_config.option, name, getattr(kept, name))
    # pytest-cov starts before the options are parsed again.
    if hasattr(early_config.known_args_namespace, _COVERAGE):
        typed = parser.parse_known_args(args)
        setattr(early_config.known_args_namespace, _COVERAGE, getattr(typed, _COVERAGE))


def unregister_watchdogs(config: pytest.Config) -> None:
    """Remove the plugins that end or report an item that takes as long as a whole run of the tests."""
    for name, option in _WATCHDOGS:
        if config.pluginmanager.hasplugin(name) and not (option and config.getoption(option, None)):
            config.pluginmanager.unregister(name=name)
