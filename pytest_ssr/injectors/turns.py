"""Several injectors' candidates in, one stream of them out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.protocol import Candidate


def in_turn(sources: Sequence[Iterator[Candidate]]) -> Iterator[Candidate]:
    """Draw from each source in turn; raises the first ProjectError when not one source can start."""
    live = list(sources)
    refusals: list[ProjectError] = []
    while live:
        for source in list(live):
            try:
                yield next(source)
            except StopIteration:
                live.remove(source)
            except ProjectError as error:
                refusals.append(error)
                live.remove(source)
    if refusals and len(refusals) == len(sources):
        raise refusals[0]
