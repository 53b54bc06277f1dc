"""Grade predicted patches."""

from pytest_ssr.grading.grade import LEAST_S, grade_patch
from pytest_ssr.grading.regressions import KnownBaseline
from pytest_ssr.grading.repaired_state import repaired_state
from pytest_ssr.grading.result import Grade, TestStatus

__all__ = ["LEAST_S", "Grade", "KnownBaseline", "TestStatus", "grade_patch", "repaired_state"]
