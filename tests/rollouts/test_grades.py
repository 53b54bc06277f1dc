"""Equal patches share one grade, which one of several threads makes."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.rollouts.grades import Grades
from pytest_ssr.grading import Grade
from pytest_ssr.records.reasons import Reason, ReasonCode

RESOLVED = Grade("a", True, Reason(ReasonCode.RESOLVED))
NONE = Grade("a", None, Reason(ReasonCode.SANDBOX_FAILED))


def test_one_of_several_threads_makes_a_grade() -> None:
    grades, started, made = Grades(), threading.Barrier(3), []

    def grade() -> Grade:
        made.append(1)
        return RESOLVED

    def ask() -> Grade:
        started.wait()
        return grades.of(("a", "1"), grade)

    with ThreadPoolExecutor(3) as pool:
        found = [future.result() for future in [pool.submit(ask) for _ in range(3)]]
    assert all(one is RESOLVED for one in found)
    assert len(made) == 1
    assert grades.of(("a", "2"), lambda: NONE) is NONE, "another patch has its own"
    assert grades.of(("b", "1"), lambda: NONE) is NONE, "another task has its own"


def test_what_could_not_be_graded_is_tried_again() -> None:
    grades = Grades()
    assert grades.of(("a", "1"), lambda: NONE) is NONE
    with pytest.raises(OSError):
        grades.of(("a", "1"), fail)
    assert grades.of(("a", "1"), lambda: RESOLVED) is RESOLVED
    assert grades.of(("a", "1"), lambda: NONE) is RESOLVED


def fail() -> Grade:
    raise OSError


def test_another_process_begins_without_grades() -> None:
    grades = Grades()
    grades.of(("a", "1"), lambda: RESOLVED)
    assert pickle.loads(pickle.dumps(grades)).of(("a", "1"), lambda: NONE) is NONE
