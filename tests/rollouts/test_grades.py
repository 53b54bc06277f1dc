"""Equal patches share one grade, which one of several threads makes."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from harness.rollouts import grades as grades_module
from harness.rollouts.grades import Grades
from harness.rollouts.runner import RolloutRunner
from pytest_ssr.grading import Grade
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.verdict import Verdict

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


def test_the_oldest_grades_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grades_module, "_MOST", 2)
    grades = Grades()
    for patch in "123":
        grades.of(("a", patch), lambda: RESOLVED)
    assert grades.of(("a", "2"), lambda: NONE) is RESOLVED
    assert grades.of(("a", "1"), lambda: NONE) is NONE


@pytest.mark.parametrize("change", [{"fail_to_pass": ("t",)}, {"pass_to_pass": ("t",)}, {}])
def test_a_grade_depends_on_the_tests_and_the_environment(change: dict[str, Any]) -> None:
    shared, made = Grades(), []

    def runner(environment: str, **tests: tuple[str, ...]) -> Any:
        one: Any = RolloutRunner.__new__(RolloutRunner)
        one.runner = SimpleNamespace(interpreter=SimpleNamespace(environment_hash=environment))
        one.verdict, one.grades = Verdict("bug", "", **tests), shared
        one.grader = lambda patch: made.append(patch) or RESOLVED
        return one

    runner("old").grade(Patch.parse(b""))
    runner("old").grade(Patch.parse(b""))
    assert len(made) == 1
    runner("old" if change else "new", **change).grade(Patch.parse(b""))
    assert len(made) == 2
