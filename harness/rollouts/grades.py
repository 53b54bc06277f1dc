"""Share the grades of equal patches among the attempts at a task."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from pytest_ssr.execution.run_cache import Locks
from pytest_ssr.grading import Grade
from pytest_ssr.records.reasons import ReasonCode

Key = tuple[str, str]
"""The id of a task, and a hash of a patch and of what else its grade depends on."""
_MOST = 256
"""Grades that are kept: each has the results of all tests. Equal patches mostly come soon after each other."""


class Grades:
    """The last grades that this process has made; several threads can use them."""

    def __init__(self) -> None:
        self._grades: OrderedDict[Key, Grade] = OrderedDict()
        self._locks = Locks()

    def __reduce__(self) -> tuple[type[Grades], tuple[()]]:
        """Return an empty object for another process, which makes its own grades."""
        return Grades, ()

    def of(self, key: Key, make: Callable[[], Grade]) -> Grade:
        """Return the grade of a patch; of several callers at a time, one makes it.

        A grade that could not be made, or only by a time limit, is not kept, so that the next caller tries again.
        """
        with self._locks.hold(key):
            grade = self._grades.get(key)
            if grade is None:
                grade = make()
                # A time limit that load made too short must not decide for all.
                if grade.resolved is not None and grade.reason.code is not ReasonCode.TIMED_OUT:
                    self._grades[key] = grade
                    while len(self._grades) > _MOST:
                        self._grades.popitem(last=False)
            return grade
