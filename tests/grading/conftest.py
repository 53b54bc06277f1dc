"""The project of tests that grade dishonest patches."""

from __future__ import annotations

import os

import pytest
from dishonest_shop import Shop, created_shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return created_shop(folder / "dishonest" / "project")
