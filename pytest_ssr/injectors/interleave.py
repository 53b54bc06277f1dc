"""Interleave the candidates of several injectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.protocol import Candidate


def interleave(sources: Sequence[Iterator[Candidate]]) -> Iterator[Candidate]:
    """Yield one candidate of each source in turn; raises the first ProjectError if all sources raise one."""
    live = list(sources)
    errors: list[ProjectError] = []
    while live:
        for source in list(live):
            try:
                yield next(source)
            except StopIteration:
                live.remove(source)
            except ProjectError as error:
                errors.append(error)
                live.remove(source)
    if errors and len(errors) == len(sources):
        raise errors[0]
