"""Check 7, `inverse-mutation`: every file of the bug matters (arXiv 2512.18552, section 2.3).

One file (or hunk) at a time is reverted from the full buggy state, and at least one failing oracle test must pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ssr.checks.context import Finding, ValidationContext, failed, passed, suite_fault
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import SuiteRun

NAME = "inverse-mutation"


def check(context: ValidationContext) -> Finding:
    """Run pytest once for each file or hunk reverted, and the script if pytest reports that a test passes.

    A run that does not end revives nothing.
    """
    for name, state in without_one(context.original, context.artifact.bug, per_hunk=context.settings.per_hunk):

        def objection(run: SuiteRun) -> CheckReason | None:
            if context.fail_to_pass & run.passing:
                return None
            return suite_fault(run, context.runner.test_runner) or CheckReason.of(CheckCode.NOTHING_REVIVED)

        run, _ = context.judged(state, f"buggy without {name}", objection)
        revived, fault = context.fail_to_pass & run.passing, suite_fault(run, context.runner.test_runner)
        if revived:
            confirmed = context.script(state, f"buggy without {name}")
            revived, fault = revived & confirmed.passing, confirmed.fault
        context.files_control[name] = tuple(sorted(revived))
        if not revived and fault is not None:
            return failed(CheckCode.REVERT_PROVES_NOTHING, part=name, cause=fault.text)
        if not revived:
            return failed(CheckCode.NOTHING_REVIVED, part=name)
    unit = "hunk" if context.settings.per_hunk else "file"
    return passed(CheckCode.PARTS_MATTER, count=len(context.files_control), unit=unit)


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
