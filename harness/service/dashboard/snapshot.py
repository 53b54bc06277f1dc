"""Write the pages of a store, or of one run, as a single file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from harness.database.records import DatabaseRecords
from harness.service.dashboard import details, gap_map, summaries
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import STATIC, policy_hash, render
from harness.service.queries import MAX_LIMIT
from harness.service.rows import ArtifactRow, AttemptRow, Page
from pytest_ssr import __version__

T = TypeVar("T")

_MOST_ROWS = 5_000
"""Rows of a list; the file stays one that a browser opens."""
_MOST_PAGES = 500
"""Artifacts and attempts that have a page each, the last ones."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The pages of a store or a run at one time."""

    html: str
    pages: int
    left_out: int
    """Artifacts and attempts without a page of their own."""


@dataclass(frozen=True, slots=True)
class _Page:
    anchor: str
    html: Markup


def snapshot(records: DatabaseRecords, *, title: str, run: str = "") -> Snapshot:
    """Return the pages of a store, or of a run of it; raises StoreError."""
    reads = Reads(records, run=run)
    artifacts, attempts = _all_of(reads.artifacts), _all_of(reads.attempts)
    # Half of the pages for each, and what one of them does not need for the other.
    shown_artifacts = artifacts[: max(_MOST_PAGES // 2, _MOST_PAGES - len(attempts))]
    shown_attempts = attempts[: _MOST_PAGES - len(shown_artifacts)]
    addresses = _Addresses(
        {("artifact", row.id) for row in shown_artifacts} | {("attempt", r.id) for r in shown_attempts}
    )
    pages = [
        *_lists(reads, artifacts, attempts, addresses, has_runs=not run),
        *(_artifact(reads, row, addresses) for row in shown_artifacts),
        *(_attempt(reads, row, addresses) for row in shown_attempts),
    ]
    counts = reads.counts()
    left_out = counts["artifacts"] + counts["rollouts"] - len(shown_artifacts) - len(shown_attempts)
    style = (STATIC / "dashboard.css").read_text()
    script = (STATIC / "dashboard.js").read_text()
    html = render(
        "snapshot.html",
        address=addresses,
        title=title,
        pages=pages,
        sections={page.anchor for page in pages},
        left_out=left_out,
        written_at=time.time(),
        version=__version__,
        style=Markup(style),
        style_hash=policy_hash(style),
        script=Markup(script),
        script_hash=policy_hash(script),
    )
    return Snapshot(html, len(pages), left_out)


class _Addresses:
    """The places of pages in the file."""

    def __init__(self, items: set[tuple[str, str]]) -> None:
        self._items = items

    def __call__(self, name: str, item: str = "") -> str:
        """Return where a page is; empty if it is left out."""
        if not item:
            return f"#{name}"
        return f"#{name}-{item}" if (name, item) in self._items else ""


def _lists(
    reads: Reads,
    artifacts: Sequence[ArtifactRow],
    attempts: Sequence[AttemptRow],
    addresses: _Addresses,
    *,
    has_runs: bool,
) -> Iterator[_Page]:
    yield _page("overview", summaries.overview(reads), addresses)
    if has_runs:
        yield _page("runs", summaries.runs_page(reads, "", ""), addresses)
    yield _page("episodes", summaries.EpisodesPage(_all_of(reads.episodes), {}), addresses)
    yield _page("artifacts", summaries.ListPage(artifacts), addresses)
    yield _page("attempts", summaries.ListPage(attempts), addresses)
    yield _page("models", summaries.models_page(reads), addresses)
    yield _page("gaps", gap_map.gaps_page(reads, ""), addresses)


def _all_of(read: Callable[..., Page[T]]) -> list[T]:
    """Return the rows of a list, up to a limit."""
    page = read(limit=MAX_LIMIT)
    rows = list(page.items)
    while page.next and len(rows) < _MOST_ROWS:
        page = read(page.next, limit=MAX_LIMIT)
        rows += page.items
    return rows


def _artifact(reads: Reads, row: ArtifactRow, addresses: _Addresses) -> _Page:
    return _page("artifact", details.artifact_page(reads, row.id), addresses, item=row.id)


def _attempt(reads: Reads, row: AttemptRow, addresses: _Addresses) -> _Page:
    return _page("attempt", details.attempt_page(reads, row.id), addresses, item=row.id)


def _page(name: str, page: object, addresses: _Addresses, *, item: str = "") -> _Page:
    html = render(f"{name}.html", layout="section.html", address=addresses, page=page, events="", here="")
    return _Page(addresses(name, item).removeprefix("#"), Markup(html))
