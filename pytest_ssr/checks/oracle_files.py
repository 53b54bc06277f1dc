"""Check 1, `test-files`: every listed file exists in the original, and the list covers what the weakening touches."""

from __future__ import annotations

from pytest_ssr.checks.context import Finding, ValidationContext, failed, passed
from pytest_ssr.project.file_roles import is_test_file
from pytest_ssr.records.check_reasons import CheckCode

NAME = "test-files"


def check(context: ValidationContext) -> Finding:
    """Check statically, except that pytest collects the files whose names do not show that they hold tests."""
    listed = context.artifact.test_files
    if not listed:
        return failed(CheckCode.NO_FILE_LISTED)
    missing = [p for p in listed if context.original.entry(p) is None]
    if missing:
        return failed(CheckCode.FILE_MISSING, files=missing)
    uncovered = sorted(set(context.artifact.weaken.paths) - set(listed))
    if uncovered:
        return failed(CheckCode.FILE_NOT_LISTED, files=uncovered)
    for path in listed:
        if not context.by_script and not is_test_file(path) and not _holds_tests(context, path):
            return failed(CheckCode.NO_TEST_IN_FILE, file=path, **context.runner_detail)
    return passed(CheckCode.FILES_LISTED, count=len(listed))


def _holds_tests(context: ValidationContext, path: str) -> bool:
    run = context.suite(context.original, "original")
    return any(i.startswith(f"{path}::") for i in run.collected)
