"""A predicted patch in, a grade out."""

from pytest_ssr.grading.grade import Grade, grade_patch, repaired_state

__all__ = ["Grade", "grade_patch", "repaired_state"]
