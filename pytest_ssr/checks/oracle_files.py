"""Check 1, `test-files`: every listed file exists in the original, and the list covers what the weakening touches."""

from __future__ import annotations

from pytest_ssr.checks.case import Case, Finding
from pytest_ssr.outcomes import some
from pytest_ssr.surface import is_test_file

NAME = "test-files"


def check(case: Case) -> Finding:
    """Static, but for files whose name does not tell that they hold tests: pytest is asked to collect those."""
    listed = case.artifact.test_files
    if not listed:
        return Finding(False, "test_files.txt lists no file")
    missing = [p for p in listed if case.original.entry(p) is None]
    if missing:
        return Finding(False, f"{some(missing)} does not exist in the original")
    uncovered = sorted(set(case.artifact.weaken.paths) - set(listed))
    if uncovered:
        return Finding(False, f"test_weaken.diff touches {some(uncovered)}, which test_files.txt does not list")
    for path in listed:
        if not is_test_file(path) and not _holds_tests(case, path):
            return Finding(False, f"{path} is listed as a test file, but pytest collects no test in it")
    return Finding(True, f"{len(listed)} test files exist and cover the weakening")


def _holds_tests(case: Case, path: str) -> bool:
    run = case.suite(case.original, "original")
    return any(i.startswith(f"{path}::") for i in run.collected)
