"""Define the record of a project that bugs are injected into, and the names of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.injectors.project_history import History
from pytest_ssr.errors import SettingsError
from pytest_ssr.execution.test_runners import PYTEST, TestRunner
from pytest_ssr.project.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Project:
    """A project of a run."""

    folder: Path
    python: Path | None = None
    """The interpreter whose environment runs its tests; None for the settings' one."""
    sandbox: str = ""
    """Its sandbox; empty for the settings' one."""
    test_runner: TestRunner = PYTEST
    """Starts its tests."""
    shown_at: Path | None = None
    """The path at which sandboxes show its tree; None for its own."""
    history: History | None = None
    """Its past commits, if its folder is not in their repository."""


def unique_names(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return the projects' names, with the path if names repeat, or with the tree's hash if paths repeat as well.

    Raises SettingsError for a project given twice.
    """
    trees, names = [s.tree_hash for s in snapshots], [s.project_name for s in snapshots]
    for tree in trees:
        if trees.count(tree) > 1:
            paths = ", ".join(str(s.origin) for s in snapshots if s.tree_hash == tree)
            raise SettingsError(f"{paths} hold the same files; name one of them")
    origins = [s.origin for s in snapshots]
    marks = [str(s.origin) if origins.count(s.origin) == 1 else s.tree_hash[:8] for s in snapshots]
    return [name if names.count(name) == 1 else f"{name} ({mark})" for name, mark in zip(names, marks, strict=True)]
