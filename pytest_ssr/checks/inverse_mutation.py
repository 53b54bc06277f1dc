"""Check 7, `inverse-mutation`: every file of the bug matters (arXiv 2512.18552, section 2.3).

One file (or hunk) at a time is reverted from the full buggy state, and at least one failing oracle test must pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ssr.checks.context import Finding, ValidationContext
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun

NAME = "inverse-mutation"


def check(context: ValidationContext) -> Finding:
    """Run pytest once for each file or hunk reverted, and the script if pytest reports that a test passes.

    A run that does not end revives nothing.
    """
    for name, state in without_one(context.original, context.artifact.bug, per_hunk=context.settings.per_hunk):

        def revives_nothing(run: SuiteRun) -> str:
            return "" if context.fail_to_pass & run.passing else run.fault or "no failing test passes"

        run, _ = context.judged(state, f"buggy without {name}", revives_nothing)
        revived, fault = context.fail_to_pass & run.passing, run.fault
        if revived:
            confirmed = context.script(state, f"buggy without {name}")
            revived, fault = revived & confirmed.passing, confirmed.fault
        context.files_control[name] = tuple(sorted(revived))
        if not revived:
            detail = f" ({fault})" if fault else ""
            return Finding(False, f"reverting {name} alone makes no failing test pass{detail}")
    unit = "hunk" if context.settings.per_hunk else "file"
    return Finding(True, f"each of {len(context.files_control)} {unit}s, reverted alone, revives a failing test")


def without_one(original: CodebaseState, bug: Patch, *, per_hunk: bool) -> Iterator[tuple[str, CodebaseState]]:
    """Yield for each file or hunk of a bug its name and the buggy state without it."""
    parts = bug.split_hunks() if per_hunk else bug.split_files()
    count: dict[str, int] = {}
    for index, part in enumerate(parts):
        path = part.files[0].path
        count[path] = count.get(path, 0) + 1
        state = original
        # Later hunks first, so that the line numbers of earlier hunks stay valid.
        for other in reversed([p for i, p in enumerate(parts) if i != index]):
            state = state.apply(other)
        yield (f"{path} hunk {count[path]}" if per_hunk else path), state
