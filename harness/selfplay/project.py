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
    history: History | None = None
    """Its past commits, if its folder is not in their repository."""


def unique_names(snapshots: Sequence[Snapshot]) -> dict[Path, str]:
    """Return the projects' names, with the path if names repeat; raises SettingsError for a project given twice."""
    trees, names = [s.tree_hash for s in snapshots], [s.project_name for s in snapshots]
    for tree in trees:
        if trees.count(tree) > 1:
            paths = ", ".join(str(s.origin) for s in snapshots if s.tree_hash == tree)
            raise SettingsError(f"{paths} hold the same files; name one of them")
    return {
        s.origin: name if names.count(name) == 1 else f"{name} ({s.origin})"
        for s, name in zip(snapshots, names, strict=True)
    }
