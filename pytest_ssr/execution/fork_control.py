"""Find the tests that behave differently in a fork of a warm process than in a fresh one, when a candidate needs it.

A test that fails in a fork shows a bug only if it passes in such a fork on the unchanged tree. That is checked for the
tests that fail, once each; a test that passes in any fork needs no check. Tests that behave differently are run in a
fresh process, and all others stay in forks.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from pytest_ssr.execution.fork_server import ForkRequest, Mode, UnfitError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.fallback import Fallback, FallbackCode
from pytest_ssr.records.test_run import SuiteRun

_REPEATS = 2
_MOST_BROKEN_CONTROLS = 3

_Kind = tuple[Mode, tuple[str, ...]]


class ForkControl:
    """Results of tests in forks on the unchanged tree; shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alike: defaultdict[_Kind, set[str]] = defaultdict(set)
        self._unlike: defaultdict[Mode, set[str]] = defaultdict(set)
        self._broken: defaultdict[Mode, int] = defaultdict(int)

    def unlike(self, mode: Mode) -> frozenset[str]:
        """Return the tests that are known to behave differently in forks of a mode."""
        with self._lock:
            return frozenset(self._unlike[mode])

    def add_alike(self, request: ForkRequest, passed: Collection[str]) -> None:
        """Record tests that passed in such a fork."""
        with self._lock:
            self._alike[_kind(request)].update(passed)

    def differing(self, request: ForkRequest, failed: Collection[str], runner: Runner) -> frozenset[str]:
        """Return the failed tests of a run that also fail in such a fork on the unchanged tree.

        A test that fails again in a repetition counts from then on as one that behaves differently; one that passes in
        it depends on timing, and may stay in forks. runner: counts the runs.
        """
        with self._lock:
            unknown = frozenset(failed) - self._alike[_kind(request)]
        if not unknown:
            return frozenset()
        differing = unknown - self._control(request, unknown, runner)
        again = frozenset[str]()
        for _ in range(_REPEATS if differing else 0):
            again |= differing - self._control(request, differing, runner)
        with self._lock:
            self._unlike[request.mode].update(again)
        return differing

    def require_end(self, request: ForkRequest, broken: SuiteRun, runner: Runner) -> None:
        """Raise UnfitError if a run that ended early also ends early on the unchanged tree.

        The tests that ended and the one that did not are run again. If that also ends early several times in a row, the
        mode is refused from then on.
        """
        if broken.unfinished:
            begun = frozenset((*broken.results, broken.unfinished))
            request = replace(request, selection=replace(request.selection, tests=begun))
        tests = request.selection.tests
        with self._lock:
            if tests is not None and self._alike[_kind(request)].issuperset(tests):
                return
        run = runner.fork(
            replace(request, state=CodebaseState(request.state.snapshot), functions=_no_functions(request))
        )
        with self._lock:
            self._broken[request.mode] = self._broken[request.mode] + 1 if run.fault else 0
            is_useless = self._broken[request.mode] >= _MOST_BROKEN_CONTROLS
        if run.fault and is_useless and runner.fork_server is not None:
            runner.fork_server.refuse(request.mode, Fallback(FallbackCode.ENDS_EARLY, run.fault))
        if run.fault:
            raise UnfitError(FallbackCode.ENDS_EARLY, run.fault)
        self.add_alike(request, run.passing)

    def _control(self, request: ForkRequest, tests: frozenset[str], runner: Runner) -> frozenset[str]:
        """Return which of the tests pass in such a fork on the unchanged tree."""
        control = replace(
            request,
            state=CodebaseState(request.state.snapshot),
            functions=_no_functions(request),
            selection=Selection(tests),
        )
        passing = runner.fork(control).passing & tests
        self.add_alike(request, passing)
        return passing


def _no_functions(request: ForkRequest) -> dict[str, tuple[()]] | None:
    return None if request.functions is None else {}


def _kind(request: ForkRequest) -> _Kind:
    """Return what forks must have in common to be compared: the mode, and the files that they collect."""
    return request.mode, () if request.mode is Mode.SWAP else tuple(request.targets)
