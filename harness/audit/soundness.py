"""Repeat the reference runs of a task in other surroundings, and name the tests whose outcome depends on them.

A sandbox has no network. The date is moved by libfaketime, if the sandbox has it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.audit.card import Cause, Condition, Soundness, Unsound, UnsteadyTest
from harness.datasets.instance_task import InstanceTask
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.suite import run_suite
from pytest_ssr.execution.test_runners import SYMPY
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.sandbox.protocol import Limits, Sandbox

REPEATS = (Condition.PLAIN, Condition.HASH_SEED, Condition.ORDER, Condition.CLOCK, Condition.TIME_ZONE)
"""The surroundings of the five repeats."""
_MORE, _MORE_S = 20, 10.0
"""More repeats find tests that seldom fail: at most so many, as far as so many seconds of tests allow."""
_TRIES = 2
"""Of a run that a limit ends: on a busy machine, it says nothing about the tests."""
_FAR_ZONE = "AAA-13:45"
"""As POSIX writes zones, so that no database of zones is needed."""
_YEARS_AHEAD, _NOW = "+1200d", "+0d"
_CLOCK_LIBRARIES = "ls -1 /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1 2>/dev/null"
_NETWORK_FILE = "ssr-network"
_MOST_FOR_NETWORK = 8
"""Tests that are run alone to find out whether they look for a network."""
_CAUSES = {
    Condition.HASH_SEED: Cause.HASH_SEED,
    Condition.ORDER: Cause.ORDER,
    Condition.CLOCK: Cause.CLOCK,
    Condition.TIME_ZONE: Cause.TIME_ZONE,
    Condition.AGAIN: Cause.LEFTOVERS,
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one repeat is run in."""

    condition: Condition
    is_solved: bool
    """Whether the code is that of the reference solution."""
    seed: int = 1
    """Of the hashes, or of the order."""


@dataclass(slots=True)
class Repeats:
    """The reference runs of a task, in surroundings of choice."""

    task: InstanceTask
    wrong: list[tuple[Surroundings, frozenset[str]]] = field(default_factory=list)
    """Each run so far, with the tests that had another outcome than they should."""
    passed: dict[Condition, set[str]] = field(default_factory=dict)
    """The tests that passed with the solution at least once."""
    seconds: float = 0.0
    """The least that a run has taken, but at least a tenth; 0 before the first run."""
    _library: str | None = None

    @property
    def _runner(self) -> Runner:
        return self.task.runner

    def run(self, surroundings: Surroundings) -> frozenset[str] | None:
        """Make a run, and return the tests that had another outcome than they should.

        Returns None if a limit ended it each time, which says nothing about the tests. Raises SandboxError.
        """
        failing, passing = self.task.tests.failing, self.task.tests.passing
        state = self._runner.original
        passed = self._passing(state if surroundings.is_solved else state.apply(self.task.artifact.bug), surroundings)
        if passed is None:
            return None
        if surroundings.is_solved:
            self.passed.setdefault(surroundings.condition, set()).update(passed)
        wrong = (failing | passing) - passed if surroundings.is_solved else failing & passed
        self.wrong.append((surroundings, wrong))
        return wrong

    def _passing(self, state: CodebaseState, surroundings: Surroundings) -> frozenset[str] | None:
        for _ in range(_TRIES):
            with self._runner.open(state) as sandbox:
                if surroundings.condition is Condition.AGAIN:
                    self._run_in(sandbox, surroundings)
                run = self._run_in(sandbox, surroundings)
            if run.limit is None:
                self.seconds = max(0.1, min(self.seconds or run.seconds, run.seconds))
                return run.passing
        return None

    def _run_in(self, sandbox: Sandbox, surroundings: Surroundings) -> SuiteRun:
        condition, seed = surroundings.condition, surroundings.seed
        env: Mapping[str, str] = {}
        if condition is Condition.TIME_ZONE:
            env = {"TZ": _FAR_ZONE}
        elif condition is Condition.CLOCK:
            env = self._clock(sandbox, _YEARS_AHEAD)
        return run_task_tests(
            self.task,
            sandbox,
            hash_seed=seed if condition is Condition.HASH_SEED else 0,
            order_seed=seed if condition is Condition.ORDER else None,
            env=env,
        )

    def _clock(self, sandbox: Sandbox, offset: str) -> dict[str, str]:
        return {"LD_PRELOAD": self._clock_library(sandbox), "FAKETIME": offset, "DONT_FAKE_MONOTONIC": "1"}

    def _clock_library(self, sandbox: Sandbox) -> str:
        if self._library is None:
            found = sandbox.exec(["sh", "-c", _CLOCK_LIBRARIES], limits=Limits(wall_s=20.0))
            self._library = next(iter(found.stdout.decode(errors="replace").split()), "")
        return self._library

    def can_vary(self, condition: Condition) -> bool:
        """Return whether the tests can be run in other surroundings of a kind."""
        if condition is Condition.ORDER:
            # A row's own command, and SymPy's runner, decide about the order themselves.
            return not isinstance(self._runner.test_runner, CommandRunner) and self._runner.test_runner != SYMPY
        return condition is not Condition.CLOCK or self._can_move_clock()

    def _can_move_clock(self) -> bool:
        with self._runner.open(self._runner.original) as sandbox:
            return bool(self._clock_library(sandbox))

    def not_passing_with_library(self) -> frozenset[str]:
        """Return the tests that libfaketime alone makes fail, at the true date."""
        with self._runner.open(self._runner.original) as sandbox:
            run = run_task_tests(self.task, sandbox, None, env=self._clock(sandbox, _NOW))
        return (self.task.tests.failing | self.task.tests.passing) - run.passing


def run_task_tests(
    task: InstanceTask, sandbox: Sandbox, only: Collection[str] | None = None, **options: Any
) -> SuiteRun:
    """Run the test files of a task in a sandbox. only: the tests to run; None: all. options: those of `run_suite`."""
    runner, tests = task.runner, None
    if only is not None and not isinstance(runner.test_runner, CommandRunner):
        tests = Selection(sorted(only))
    return run_suite(
        sandbox,
        runner.interpreter,
        targets=task.files,
        options=runner.pytest_options,
        limits=runner.limits_after(task.original_s),
        selection=tests,
        test_runner=runner.test_runner,
        **options,
    )


def soundness_of(task: InstanceTask, *, deadline: float) -> Soundness:
    """Repeat the reference runs of a task in other surroundings.

    deadline: a time of `time.monotonic`, after which no further repeat begins. Raises SandboxError.
    """
    repeats = Repeats(task)
    conditions: list[Condition] = []
    wanted = [condition for condition in (*REPEATS, Condition.AGAIN) if repeats.can_vary(condition)]
    for condition in wanted:
        if time.monotonic() > deadline:
            break
        outcomes = [repeats.run(Surroundings(condition, is_solved)) for is_solved in (True, False)]
        if None not in outcomes:
            conditions.append(condition)
    _repeat_more(repeats, deadline)
    unsteady = list(_unsteady(repeats))
    problems = _problems(repeats, unsteady)
    unsteady += _unsteady_among(repeats, task.tests.set_aside_tests)
    known = {test.test for test in unsteady}
    unsteady += network_tests(task, [test for test in task.tests.set_aside_tests if test not in known])
    is_cut = len(conditions) < len(wanted)
    return Soundness(problems, tuple(unsteady), tuple(conditions), task.tests.set_aside, is_cut)


def _repeat_more(repeats: Repeats, deadline: float) -> None:
    """Repeat quick runs more often, with other seeds."""
    count = min(_MORE, int(_MORE_S / repeats.seconds))
    for number, condition in zip(range(count), itertools.cycle(REPEATS[:3]), strict=False):
        if time.monotonic() > deadline:
            return
        repeats.run(Surroundings(condition, is_solved=True, seed=number + 2))


def _unsteady(repeats: Repeats) -> Iterator[UnsteadyTest]:
    """Yield each test with another outcome, and why: each such run is repeated, and so is the plain one."""
    deviating = [(surroundings, wrong) for surroundings, wrong in repeats.wrong if wrong]
    if not deviating:
        return
    found: dict[str, dict[Cause, None]] = {}
    for surroundings, wrong in deviating:
        if surroundings.condition is Condition.CLOCK:
            wrong -= repeats.not_passing_with_library()
        if not wrong:
            continue
        again = repeats.run(surroundings) or frozenset()
        repeats.run(Surroundings(Condition.PLAIN, surroundings.is_solved))
        for test in sorted(wrong):
            cause = _CAUSES.get(surroundings.condition) if test in again else None
            found.setdefault(test, {})[cause or Cause.FLICKERS] = None
    plain = [wrong for surroundings, wrong in repeats.wrong if surroundings.condition is Condition.PLAIN]
    flickering = frozenset[str]().union(*plain)
    for test, causes in sorted(found.items()):
        is_by_chance = test in flickering or Cause.FLICKERS in causes
        yield from (UnsteadyTest(test, cause) for cause in ([Cause.FLICKERS] if is_by_chance else causes))


def _unsteady_among(repeats: Repeats, failed: Sequence[str]) -> Iterator[UnsteadyTest]:
    """Yield those of some tests, which did not pass in the run that found the tests of the row, that did pass later."""
    for test in failed:
        passed = [condition for condition, tests in repeats.passed.items() if test in tests]
        if passed:
            cause = Cause.FLICKERS if Condition.PLAIN in passed else _CAUSES[passed[0]]
            yield UnsteadyTest(test, cause)


def unsteady_failures(task: InstanceTask, tests: Sequence[str], *, deadline: float) -> list[UnsteadyTest]:
    """Return those of some tests, which did not pass with the reference solution, that pass now and then, or look for
    a network. deadline: as for `soundness_of`. Raises SandboxError.
    """
    repeats = Repeats(task)
    for condition in filter(repeats.can_vary, REPEATS):
        if time.monotonic() < deadline:
            repeats.run(Surroundings(condition, is_solved=True))
    unsteady = list(_unsteady_among(repeats, tests))
    known = {test.test for test in unsteady}
    alone = [test for test in tests if test not in known]
    return unsteady + (network_tests(task, alone) if time.monotonic() < deadline else [])


def _problems(repeats: Repeats, unsteady: Sequence[UnsteadyTest]) -> tuple[Unsound, ...]:
    problems = []
    failing = repeats.task.tests.failing
    in_order = [(s, wrong) for s, wrong in repeats.wrong if s.condition is not Condition.ORDER]
    if any(not surroundings.is_solved and wrong >= failing for surroundings, wrong in in_order):
        problems.append(Unsound.EMPTY_RESOLVES)
    if any(test.cause not in (Cause.ORDER, Cause.NETWORK) for test in unsteady):
        problems.append(Unsound.UNSTEADY)
    return tuple(problems)


def network_tests(task: InstanceTask, tests: Sequence[str]) -> list[UnsteadyTest]:
    """Return those of some tests, which do not pass with the reference solution, that look for a network.

    Each is run alone; at most eight are. Raises SandboxError.
    """
    found = []
    for test in tests[:_MOST_FOR_NETWORK]:
        with task.runner.open(task.runner.original) as sandbox:
            path = f"{sandbox.scratch}/{_NETWORK_FILE}"
            sandbox.write(path, b"")
            run_task_tests(task, sandbox, [test], env={"SSR_NETWORK": path}, guests=("network_probe",))
            with contextlib.suppress(FileNotFoundError):
                if sandbox.read(path):
                    found.append(UnsteadyTest(test, Cause.NETWORK))
    return found
