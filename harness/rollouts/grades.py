"""Share the grades of equal patches among the attempts at a task."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from pytest_ssr.grading import Grade

Key = tuple[str, str]
"""The id of a task and the hash of a patch."""


class Grades:
    """The grades that this process has made; several threads can use them."""

    def __init__(self) -> None:
        self._grades: dict[Key, Grade] = {}
        self._locks: defaultdict[Key, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Grades], tuple[()]]:
        """Return an empty object for another process, which makes its own grades."""
        return Grades, ()

    def of(self, key: Key, make: Callable[[], Grade]) -> Grade:
        """Return the grade of a patch; of several callers at a time, one makes it.

        A grade that could not be made is not kept, so that the next caller tries again.
        """
        with self._lock:
            lock = self._locks[key]
        with lock:
            if key in self._grades:
                return self._grades[key]
            grade = make()
            if grade.resolved is not None:
                self._grades[key] = grade
            return grade
