"""Find the tests that the ids of a row name, and those of them that hold on this machine.

Ids in rows come from logs: they are cut at spaces, name a test by the first line of its docstring, or hold the number
of an unnamed parameter set, which differs from run to run. Runs report exact ids, and a row's id may name several.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.datasets.instance import EmptyResolvesError, Instance, InstanceError, ReferenceFailsError
from pytest_ssr.grading.result import TestStatus
from pytest_ssr.records.test_run import SuiteRun, abbreviate

Names = Mapping[str, tuple[str, ...]]
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class RowTests:
    """The tests of a row that decide, by the ids of the row."""

    fail_to_pass: Names
    """Id in the row to the ids of its tests in runs."""
    pass_to_pass: Names
    set_aside: tuple[str, ...] = ()
    """PASS_TO_PASS ids that do not hold here with the reference solution."""
    set_aside_tests: tuple[str, ...] = ()
    """The tests of these ids, as runs report them."""

    @property
    def failing(self) -> frozenset[str]:
        """The tests that fail without the reference solution, as runs report them."""
        return frozenset(test for tests in self.fail_to_pass.values() for test in tests)

    @property
    def passing(self) -> frozenset[str]:
        """The tests that pass with and without the reference solution."""
        return frozenset(test for tests in self.pass_to_pass.values() for test in tests) - self.failing

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "fail_to_pass": {name: list(tests) for name, tests in self.fail_to_pass.items()},
            "pass_to_pass": {name: list(tests) for name, tests in self.pass_to_pass.items()},
            "set_aside": list(self.set_aside),
            "set_aside_tests": list(self.set_aside_tests),
        }


def statuses_by_row(names: Names, statuses: Mapping[str, str]) -> dict[str, str]:
    """Return the status of each id of a row: that of its first test that did not pass, if there is one."""
    passed = str(TestStatus.PASSED)
    result = {}
    for name, tests in names.items():
        outcomes = [statuses.get(test, str(TestStatus.MISSING)) for test in tests]
        result[name] = next((status for status in outcomes if status != passed), passed)
    return result


def find_tests(instance: Instance, solved: SuiteRun, unsolved: SuiteRun) -> RowTests:
    """Return the tests of a row.

    solved, unsolved: runs with and without the reference solution. PASS_TO_PASS ids that do not hold are set aside.
    Raises DoesNotHoldError if a FAIL_TO_PASS id does not hold, InstanceError if a limit is the cause.
    """
    names = _Lookup(solved).tests_of((*instance.fail_to_pass, *instance.pass_to_pass))
    total = len(instance.fail_to_pass) + len(instance.pass_to_pass)
    failing = [i for i in instance.fail_to_pass if not _all_pass(names.get(i, ()), solved)]
    if failing:
        because = f" ({solved.fault})" if solved.fault else ""
        message = f"{len(failing)} of {total} tests do not pass here with the reference solution"
        text = f"{instance.id}: {message}: {abbreviate(failing)}{because}"
        if solved.limit is not None:
            # The machine may be the cause.
            raise InstanceError(text)
        raise ReferenceFailsError(text, [test for i in failing for test in names.get(i, (i,))])
    fail_to_pass = {i: tuple(t for t in names[i] if t not in unsolved.passing) for i in instance.fail_to_pass}
    if passing := [i for i, tests in fail_to_pass.items() if not tests]:
        message = f"{len(passing)} FAIL_TO_PASS tests pass without the reference solution"
        raise EmptyResolvesError(
            f"{instance.id}: {message}: {abbreviate(passing)}", [t for i in passing for t in names[i]]
        )
    pass_to_pass = {i: names[i] for i in instance.pass_to_pass if _all_pass(names.get(i, ()), solved)}
    # An id can name several tests, of which the bug breaks one.
    others = {i: tuple(t for t in names[i] if t not in fail_to_pass[i]) for i in instance.fail_to_pass}
    pass_to_pass |= {i: tests for i, tests in others.items() if tests}
    set_aside = tuple(i for i in instance.pass_to_pass if i not in pass_to_pass)
    tests = tuple(dict.fromkeys(test for i in set_aside for test in names.get(i, ()) if test not in solved.passing))
    return RowTests(fail_to_pass, pass_to_pass, set_aside, tests)


def _all_pass(tests: Collection[str], run: SuiteRun) -> bool:
    return bool(tests) and all(test in run.passing for test in tests)


class _Lookup:
    """Finds the tests of a run by the ids of a row."""

    def __init__(self, run: SuiteRun) -> None:
        self._collected = tuple(dict.fromkeys((*run.collected, *run.results)))
        self._exact = frozenset(self._collected)
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for test in self._collected:
            for name in {_until_space(test), test.strip(), *run.names.get(test, ())}:
                self._by_name[name].append(test)

    def tests_of(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the tests of each id; ids without a test are missing."""
        names = tuple(dict.fromkeys(names))
        result = {i: (i,) if i in self._exact else tuple(self._by_name.get(i, ())) for i in names}
        result = {i: tests for i, tests in result.items() if tests}
        return result | self._by_position([i for i in names if i not in result], result)

    def _by_position(self, names: Sequence[str], known: Names) -> dict[str, tuple[str, ...]]:
        """Match ids that differ by numbers of unnamed parameter sets, in ascending order, if there are equally many."""
        taken = {test for tests in known.values() for test in tests}
        free = _by_form(test for test in self._collected if test not in taken)
        pairs: dict[str, tuple[str, ...]] = {}
        for form, group in _by_form(names).items():
            tests = free.get(form, [])
            if "#" in form.partition("[")[2] and len(tests) == len(group):
                pairs.update({name: (test,) for name, test in zip(group, tests, strict=True)})
        return pairs


def _by_form(names: Iterable[str]) -> dict[str, list[str]]:
    """Group ids that differ by the numbers in their brackets only, each group in ascending order."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        function, bracket, parameters = name.partition("[")
        groups[function + bracket + _NUMBER.sub("#", parameters)].append(name)
    for group in groups.values():
        group.sort(key=lambda name: [int(n) for n in _NUMBER.findall(name.partition("[")[2])])
    return groups


def _until_space(name: str) -> str:
    return re.split(r"\s", name, maxsplit=1)[0]
