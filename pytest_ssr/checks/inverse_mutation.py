"""Check 7, `inverse-mutation`: every file of the bug matters (arXiv 2512.18552, section 2.3).

From the full buggy state one file (or hunk) at a time is reverted, and at least one failing oracle test must pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.outcomes import SuiteRun
from pytest_ssr.patch import Patch

NAME = "inverse-mutation"


def check(case: Case) -> Finding:
    """Run pytest itself once for each file or hunk reverted, and the script where that says that a test passes.

    A run without an end revives nothing.
    """
    for name, state in without_one(case.original, case.artifact.bug, per_hunk=case.settings.per_hunk):

        def revives_nothing(run: SuiteRun) -> str:
            return "" if case.fail_to_pass & run.passing else run.fault or "no failing test passes"

        run, _ = case.judged(state, f"buggy without {name}", revives_nothing)
        revived, fault = case.fail_to_pass & run.passing, run.fault
        if revived:
            confirmed = case.script(state, f"buggy without {name}")
            revived, fault = revived & confirmed.passing, confirmed.fault
        case.files_control[name] = tuple(sorted(revived))
        if not revived:
            why = f" ({fault})" if fault else ""
            return Finding(False, f"reverting {name} alone makes no failing test pass{why}")
    parts = "hunk" if case.settings.per_hunk else "file"
    return Finding(True, f"each of {len(case.files_control)} {parts}s, reverted alone, revives a failing test")


def without_one(original: CodebaseState, bug: Patch, *, per_hunk: bool) -> Iterator[tuple[str, CodebaseState]]:
    """Yield for each file or hunk of a bug its name and the buggy state without it."""
    parts = bug.split_hunks() if per_hunk else bug.split_files()
    count: dict[str, int] = {}
    for index, part in enumerate(parts):
        path = part.files[0].path
        count[path] = count.get(path, 0) + 1
        state = original
        # Later hunks first: each then still finds the lines before it where the original has them.
        for other in reversed([p for i, p in enumerate(parts) if i != index]):
            state = state.apply(other)
        yield (f"{path} hunk {count[path]}" if per_hunk else path), state
