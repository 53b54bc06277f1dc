"""Convert the artifacts of a store to rows of SWE-bench, with the repositories of their start commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from harness.exporters.index import Index
from harness.exporters.library import Library
from harness.exporters.protocol import Choices, Row
from harness.exporters.skipped import SkippedError
from harness.exporters.sources import Source, index_sources
from harness.exporters.tasks import instance
from pytest_ssr.options import STORE_MARK


def is_store(path: Path) -> bool:
    """Return whether a folder is a store."""
    return (path / STORE_MARK).is_file()


def rows_of(store: Path, repos: Path, report: Callable[[str, str], None]) -> Iterator[Row]:
    """Yield the row of each artifact, and write its start commit into a repository in `repos`.

    report: called with the name and the reason of each item that yields no row. Raises StoreError for an unreadable
    store.
    """

    def report_skip(name: str, error: SkippedError) -> None:
        report(name, str(error))

    sources = [Source(store)]
    with Index() as index:
        index_sources(index, sources, report_skip)
        for task in Library(sources, index).tasks():
            try:
                yield instance(task, Choices(repos=repos))
            except SkippedError as error:
                report_skip(f"artifact {task.id}", error)
