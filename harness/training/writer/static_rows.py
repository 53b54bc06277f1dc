"""Make rows for a model that writes repairs or bugs, from static bugs: an operator changes a function.

No test is run. A row asks for the lines of a region of the buggy function that has all of the bug, and its reply has
the lines of the original; the rows of an injector have both exchanged, and ask for a bug. Only bugs are used whose
change is within one region; see `regions`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.injectors.lm_prompt import bug_question
from harness.solvers.writer.prompt import Failure, has_marks, question, reply
from harness.solvers.writer.regions import Region, function_text, regions_with_change, smallest_of
from harness.storage.atomic_write import write_text
from harness.training.search.examples import LONGEST_BYTES, Bug, only_function, static_bugs
from harness.training.search.sources import SourceFolder
from harness.training.writer.role import Role
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.source.syntax_tree import parse

_SMALLEST = 2 / 3
"""The share of rows with the smallest region; the others have any region with all of the bug."""


@dataclass(frozen=True, slots=True)
class RegionBug:
    """A bug in a region of a function."""

    operator: str
    path: str
    function: str
    """Its qualified name."""
    smallest: tuple[Region, ...]
    """The regions of the buggy function with all of the bug that have the fewest statements."""
    regions: tuple[Region, ...]
    """All regions of the buggy function with all of the bug."""
    original: str
    """The function without the bug."""

    def row(
        self, region: Region, project: str, role: Role = Role.SOLVER, failure: Failure | None = None
    ) -> dict[str, Any]:
        """Return the row that asks for the original lines of one of the regions; see `Role`.

        failure: shown to a solver.
        """
        lines = region.original_lines(self.original)
        assert lines is not None
        asked = bug_question(region) if role is Role.INJECTOR else question(region, failure)
        return {
            "messages": [*asked, {"role": "assistant", "content": reply(lines)}],
            "project": project,
            # By this name, training compares a row with the sets that it must not have.
            "repository": project,
            "operator": self.operator,
            "path": self.path,
            "function": self.function,
        }


def region_bugs(bugs: Iterator[Bug]) -> Iterator[RegionBug]:
    """Yield the bugs that are within one region of a function."""
    for bug in bugs:
        source, original = parse(bug.path, bug.buggy), parse(bug.path, bug.original)
        if source is None or original is None:
            continue
        scope, before = only_function(source, bug.qualname), only_function(original, bug.qualname)
        if scope is None or before is None or scope.end - scope.start > LONGEST_BYTES:
            continue
        if (
            bug.buggy[: scope.start] + bug.buggy[scope.end :]
            != bug.original[: before.start] + bug.original[before.end :]
        ):
            continue
        buggy_text, original_text = function_text(source, scope), function_text(original, before)
        if buggy_text is None or original_text is None or has_marks(buggy_text) or has_marks(original_text):
            continue
        regions = regions_with_change(buggy_text, original_text)
        if regions:
            smallest = tuple(smallest_of(regions))
            yield RegionBug(bug.operator, bug.path, bug.qualname, smallest, tuple(regions), original_text)


def rows_of(
    source: SourceFolder, name: str, injectors: str, *, count: int, seed: int, role: Role = Role.SOLVER
) -> Iterator[dict[str, Any]]:
    """Yield at most `count` different rows of a project."""
    rng = random.Random(f"{name}:{seed}")
    seen: set[str] = set()
    bugs = static_bugs(source, load_injectors(injectors), seed=seed)
    if role is Role.INJECTOR:
        # Then the region is of the original, and has all that the bug replaces.
        bugs = (replace(bug, original=bug.buggy, buggy=bug.original) for bug in bugs)
    for bug in region_bugs(bugs):
        if len(seen) >= count:
            return
        region = rng.choice(bug.smallest if rng.random() < _SMALLEST else bug.regions)
        row = bug.row(region, name, role)
        content = json.dumps(row["messages"])
        if content not in seen:
            seen.add(content)
            yield row


def write_rows(
    folder: Path, name: str, injectors: str, path: Path, *, count: int, seed: int, role: Role = Role.SOLVER
) -> int:
    """Write the rows of a project to a file, which is complete or not there; return their number."""
    rows = list(rows_of(SourceFolder(folder), name, injectors, count=count, seed=seed, role=role))
    write_text(path, "".join(f"{json.dumps(row)}\n" for row in rows))
    return len(rows)
