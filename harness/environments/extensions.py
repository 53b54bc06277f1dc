"""Find the tools and scores that other packages add through entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from harness.agents.tools.protocol import Tool
from pytest_ssr.errors import SettingsError

TOOLS_GROUP = "pytest_ssr.tools"


def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def load_tools(names: Sequence[str]) -> list[Tool]:
    """Return new instances of the named tools; raises SettingsError for an unknown name.

    Each entry point names a class, or a function without arguments, that returns a `Tool`.
    """
    offered = entry_points_of(TOOLS_GROUP) if names else {}
    for name in names:
        if name not in offered:
            choices = ", ".join(sorted(offered)) or "none are installed"
            raise SettingsError(f"there is no tool {name!r} among the entry points {TOOLS_GROUP}: {choices}")
    return [_new_tool(offered[name]) for name in names]


def load_extension(point: EntryPoint) -> Callable[..., Any]:
    """Return what an entry point names; raises SettingsError, with the reason, if it cannot be imported or called."""
    try:
        loaded = point.load()
    except Exception as error:  # An import can fail in any way.
        raise _broken(point, error) from error
    if not callable(loaded):
        raise SettingsError(f"the entry point {point.name} = {point.value} of {point.group} cannot be called")
    return loaded  # type: ignore[no-any-return]


def _new_tool(point: EntryPoint) -> Tool:
    make = load_extension(point)
    try:
        tool: Tool = make()
    except Exception as error:
        raise _broken(point, error) from error
    return tool


def _broken(point: EntryPoint, error: Exception) -> SettingsError:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return SettingsError(f"the entry point {point.name} = {point.value} of {point.group} fails: {text}")
