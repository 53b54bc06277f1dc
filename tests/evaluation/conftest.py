from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from rows import write_project, written


class Dataset:
    """Rows in a file, their clones, and one store for all tests, so that each grade is computed once."""

    def __init__(self, folder: Path) -> None:
        clones, self.rows = write_project(folder)
        self.path = written(folder / "rows.jsonl", self.rows)
        self.common = ["--repos", str(clones), "--python", str(plain_python()), "--store", str(folder / "store")]
        self.common += ["--sandbox", "process"]

    def rows_again(self) -> list[dict[str, Any]]:
        return [dict(r) for r in self.rows]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(tmp_path_factory.mktemp("dataset"))
