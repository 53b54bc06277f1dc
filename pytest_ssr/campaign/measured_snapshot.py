"""Show injectors on which lines a bug may count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.injectors.revision_filter import ProjectDiff
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.source.skip_comments import SkippedLines


@dataclass(frozen=True)
class MeasuredSnapshot(Snapshot):
    """A snapshot whose tests were measured; see `MeasuredTree`."""

    reach: CoverageMap | None = None
    """Which statements each test reaches; None if that could not be recorded."""
    diff: ProjectDiff | None = None
    """The changes that bugs are restricted to."""
    skipped: Mapping[str, SkippedLines] = field(default_factory=dict)
    """What `# ssr: skip` excludes, by path."""

    def may_count(self, path: str, first: int, last: int) -> bool:
        """Return whether a bug on these 1-based lines of a function may count."""
        is_run = self.reach is None or self.reach.is_run(path, first, last)
        spans = self.diff.lines.get(path, ()) if self.diff is not None else ((first - 1, last),)
        is_skipped = path in self.skipped and self.skipped[path].overlaps((first - 1, last))
        return is_run and not is_skipped and any(begin < last and first - 1 < end for begin, end in spans)
