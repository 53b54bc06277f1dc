from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import write_project


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Return a folder of clones, and dataset rows of one of them."""
    return write_project(tmp_path_factory.mktemp("instances"))


@pytest.fixture
def row(repository: tuple[Path, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return a row that a test may change."""
    return dict(repository[1][0])
