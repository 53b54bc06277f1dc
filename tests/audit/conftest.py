"""A row with a clone in bubblewrap, and a grader for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python
from rows import write_project

from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.instance import Instance
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


class Rows:
    """Two rows of a small repository: a bug to fix, and a function to write."""

    def __init__(self, folder: Path) -> None:
        clones, rows = write_project(folder)
        store = Store(folder / "store")
        environments = Environments(store, plain_python())
        self.instances: list[Instance] = [read_row(row, "row") for row in rows]
        self.grader = Grader(
            store, Repositories(store, clones), environments, RuleSettings(time_limit_s=60), sandbox="bubblewrap"
        )


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    project = Rows(tmp_path_factory.mktemp("audited"))
    yield project
    project.grader.close()
