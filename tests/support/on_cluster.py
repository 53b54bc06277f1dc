"""Run tests with a cluster as the executor: `PYTHONPATH=tests/support pytest -p on_cluster tests/environments/adapters`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from clusters import LocalCluster


@pytest.fixture(scope="session", autouse=True)
def _cluster():
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), 2) as cluster:
        os.environ["SSR_EXECUTOR"] = f"ray://{cluster.address}"
        yield
        del os.environ["SSR_EXECUTOR"]
