from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from proven import project, proven

if TYPE_CHECKING:
    from clusters import LocalCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Return a cluster of two nodes with a slot each; a test that kills one adds another."""
    from clusters import LocalCluster

    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield cluster


__all__ = ["cluster", "project", "proven"]
