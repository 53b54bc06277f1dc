from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from proven import project, proven

if TYPE_CHECKING:
    from clusters import LocalCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Return a cluster of two nodes with a slot each; a test that kills one adds another.

    The clocks of the nodes differ by a day: nothing may depend on them.
    """
    from clocks import DAY_S, shifted_clock
    from clusters import LocalCluster

    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, 1) as cluster:
        cluster.add(**shifted_clock(folder / "clock", DAY_S))
        yield cluster


__all__ = ["cluster", "project", "proven"]
