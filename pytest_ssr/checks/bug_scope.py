"""Check 4, `bug-scope`: the bug changes enough files, only code, none of the test surface, and is not a time bomb."""

from __future__ import annotations

from pytest_ssr.checks.context import Finding, ValidationContext
from pytest_ssr.checks.forbidden_uses import forbidden_uses
from pytest_ssr.grading.repaired_state import shadowing
from pytest_ssr.project.file_roles import is_code, is_test_surface

NAME = "bug-scope"


def check(context: ValidationContext) -> Finding:
    """Check statically: the names of the touched files, and that the diff applies exactly to the original."""
    bug = context.artifact.bug
    least = context.settings.min_changed_files
    if len(bug.files) < least:
        return Finding(False, f"bug_inject.diff changes {len(bug.files)} files, {least} are required")
    for path in sorted(shadowing(context.original, bug.paths, context.artifact.test_files)):
        return Finding(False, f"bug_inject.diff adds {path}, which takes the place of a module that tests import")
    for path in bug.paths:
        if path in context.artifact.test_files or is_test_surface(path):
            return Finding(False, f"bug_inject.diff touches {path}, which belongs to the test surface")
        if not is_code(path):
            return Finding(False, f"bug_inject.diff touches {path}, which is not a code file")
    state = context.buggy
    if not state.changes:
        return Finding(False, "bug_inject.diff changes nothing")
    forbidden = forbidden_uses(context.original, state)
    if forbidden:
        return Finding(False, f"with the bug {forbidden[0]}: it could come and go, or fail tests without breaking code")
    return Finding(True, f"{len(bug.files)} code files changed")
