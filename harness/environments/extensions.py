"""Find the tools and scores that other packages add through entry points."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

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
    return [offered[name].load()() for name in names]
