"""Which tests do in a fork of a warm process what they do in a fresh one, found out when a candidate needs to know.

A test that fails in a fork shows a bug only if it passes in such a fork on the unchanged tree. That is tried for the
tests that fail, once each; a test that passes in any fork needs no trial. Tests that behave differently are run in a
fresh process, and all others stay in forks.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.warm import Mode, UnfitError, Wanted
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.outcomes import SuiteRun

_REPEATS = 2
_MOST_BROKEN_CONTROLS = 3

_Kind = tuple[Mode, tuple[str, ...]]


class ForkControl:
    """What is known of tests in forks on the unchanged tree; shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alike: defaultdict[_Kind, set[str]] = defaultdict(set)
        self._unlike: defaultdict[Mode, set[str]] = defaultdict(set)
        self._broken: defaultdict[Mode, int] = defaultdict(int)

    def unlike(self, mode: Mode) -> frozenset[str]:
        """Return the tests that behave differently in forks of a mode, as far as is known."""
        with self._lock:
            return frozenset(self._unlike[mode])

    def add_alike(self, wanted: Wanted, passed: Collection[str]) -> None:
        """Take in tests that passed in such a fork."""
        with self._lock:
            self._alike[_kind(wanted)].update(passed)

    def differing(self, wanted: Wanted, failed: Collection[str], bench: Workbench) -> frozenset[str]:
        """Return those of the failed tests of a run that fail in such a fork on the unchanged tree as well.

        A test that fails again when that is repeated is known from then on as one that behaves differently; one that
        passes then depends on timing, and may stay in forks. bench: which counts the runs.
        """
        with self._lock:
            unknown = frozenset(failed) - self._alike[_kind(wanted)]
        if not unknown:
            return frozenset()
        differing = unknown - self._control(wanted, unknown, bench)
        again = frozenset[str]()
        for _ in range(_REPEATS if differing else 0):
            again |= differing - self._control(wanted, differing, bench)
        with self._lock:
            self._unlike[wanted.mode].update(again)
        return differing

    def require_end(self, wanted: Wanted, broken: SuiteRun, bench: Workbench) -> None:
        """Raise UnfitError if a run that was broken off would be broken off on the unchanged tree as well.

        The tests that came before and the one that did not end are run again. If that does not end either several times
        in a row, no more runs are made in the mode.
        """
        if broken.unfinished:
            begun = frozenset((*broken.results, broken.unfinished))
            wanted = replace(wanted, selection=replace(wanted.selection, tests=begun))
        tests = wanted.selection.tests
        with self._lock:
            if tests is not None and self._alike[_kind(wanted)].issuperset(tests):
                return
        run = bench.fork(replace(wanted, state=CodebaseState(wanted.state.snapshot), functions=_no_functions(wanted)))
        with self._lock:
            self._broken[wanted.mode] = self._broken[wanted.mode] + 1 if run.fault else 0
            is_useless = self._broken[wanted.mode] >= _MOST_BROKEN_CONTROLS
        if run.fault and is_useless and bench.warm is not None:
            bench.warm.refuse(wanted.mode, f"forks end early on the unchanged tree as well: {run.fault}")
        if run.fault:
            raise UnfitError(f"such a fork ends early on the unchanged tree as well: {run.fault}")
        self.add_alike(wanted, run.passing)

    def _control(self, wanted: Wanted, tests: frozenset[str], bench: Workbench) -> frozenset[str]:
        """Return which of the tests pass in such a fork on the unchanged tree."""
        control = replace(
            wanted,
            state=CodebaseState(wanted.state.snapshot),
            functions=_no_functions(wanted),
            selection=Selection(tests),
        )
        passing = bench.fork(control).passing & tests
        self.add_alike(wanted, passing)
        return passing


def _no_functions(wanted: Wanted) -> dict[str, tuple[()]] | None:
    return None if wanted.functions is None else {}


def _kind(wanted: Wanted) -> _Kind:
    """Return what a fork has in common with others: the mode, and the files that it collects."""
    return wanted.mode, () if wanted.mode is Mode.SWAP else tuple(wanted.targets)
