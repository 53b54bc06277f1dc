"""Check 4, `bug-scope`: the bug changes enough files, code only, nothing of the test surface, and is no time bomb."""

from __future__ import annotations

from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.checks.unfit import unfit_sources
from pytest_ssr.grading.shadows import shadowing
from pytest_ssr.surface import is_code, is_test_surface

NAME = "bug-scope"


def check(case: Case) -> Finding:
    """Static: names of the files touched, and that the diff applies exactly to the original."""
    bug = case.artifact.bug
    least = case.settings.min_changed_files
    if len(bug.files) < least:
        return Finding(False, f"bug_inject.diff changes {len(bug.files)} files, {least} are required")
    for path in sorted(shadowing(case.original, bug.paths, case.artifact.test_files)):
        return Finding(False, f"bug_inject.diff adds {path}, which takes the place of a module that tests import")
    for path in bug.paths:
        if path in case.artifact.test_files or is_test_surface(path):
            return Finding(False, f"bug_inject.diff touches {path}, which belongs to the test surface")
        if not is_code(path):
            return Finding(False, f"bug_inject.diff touches {path}, which is not a code file")
    state = case.buggy
    if not state.changes:
        return Finding(False, "bug_inject.diff changes nothing")
    unfit = unfit_sources(case.original, state)
    if unfit:
        return Finding(False, f"with the bug {unfit[0]}: it could come and go, or fail tests without breaking code")
    return Finding(True, f"{len(bug.files)} code files changed")
