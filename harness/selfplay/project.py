"""Define the record of a project that bugs are injected into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_ssr.execution.test_runners import PYTEST, TestRunner


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
