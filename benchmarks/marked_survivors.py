"""A pytest plugin with the injector `marked`: only changes that are marked "probably equivalent".

Run in a project: `PYTHONPATH=BENCHMARKS pytest -p marked_survivors --ssr-inject --ssr-injector marked --ssr-time 4m
--ssr-json OUT.json`. A usual run tries marked changes last, so that few of its survivors have a mark. Those of OUT.json
are listed for judgements by `equivalence_marks.py --survivors OUT.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree
from pytest_ssr.injectors.sampler import interleave
from pytest_ssr.source.equivalence_signs import common_sign


class MarkedInjector:
    """Yields the marked changes of the injectors `mutation` and `removal`."""

    name = "marked"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield them in the usual order."""
        for candidate in interleave([i.candidates(tree, seed=seed) for i in load_injectors("mutation,removal")]):
            changes = [(path, tree.read(path), data) for path, data in candidate.changes.items()]
            if common_sign(changes) is not None:
                yield candidate


def pytest_ssr_injectors() -> dict[str, Injector]:
    """Return the injector."""
    return {MarkedInjector.name: MarkedInjector()}
