"""Grade predicted patches."""

from pytest_ssr.grading.evidence import MIN_DURATION_S
from pytest_ssr.grading.grade import grade_patch
from pytest_ssr.grading.regressions import BaselineSource
from pytest_ssr.grading.repaired_state import unsolved_state
from pytest_ssr.grading.result import Grade, TestStatus

__all__ = ["MIN_DURATION_S", "BaselineSource", "Grade", "TestStatus", "grade_patch", "unsolved_state"]
