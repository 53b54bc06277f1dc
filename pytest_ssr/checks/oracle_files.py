"""Check 1, `test-files`: every listed file exists in the original, and the list covers what the weakening touches."""

from __future__ import annotations

from pytest_ssr.checks.context import Finding, ValidationContext
from pytest_ssr.project.file_roles import is_test_file
from pytest_ssr.records.test_run import abbreviate

NAME = "test-files"


def check(context: ValidationContext) -> Finding:
    """Check statically, except that pytest collects the files whose names do not show that they hold tests."""
    listed = context.artifact.test_files
    if not listed:
        return Finding(False, "test_files.txt lists no file")
    missing = [p for p in listed if context.original.entry(p) is None]
    if missing:
        return Finding(False, f"{abbreviate(missing)} does not exist in the original")
    uncovered = sorted(set(context.artifact.weaken.paths) - set(listed))
    if uncovered:
        return Finding(False, f"test_weaken.diff touches {abbreviate(uncovered)}, which test_files.txt does not list")
    for path in listed:
        if not is_test_file(path) and not _holds_tests(context, path):
            return Finding(False, f"{path} is listed as a test file, but pytest collects no test in it")
    return Finding(True, f"{len(listed)} test files exist and cover the weakening")


def _holds_tests(context: ValidationContext, path: str) -> bool:
    run = context.suite(context.original, "original")
    return any(i.startswith(f"{path}::") for i in run.collected)
