"""Try the forgeries of a kit on a task: which its own verifier accepts, which this package's grade does, what leaks."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.audit.card import SEPARATE, SHARED, TESTS, ForgeryResult, Leak, Sealing
from harness.audit.forgery_kit import (
    PatchForgery,
    ScriptForgery,
    row_forgeries,
    solution_in_comments,
    task_forgeries,
)
from harness.audit.leaks import row_leaks, task_leaks
from harness.datasets.instance import Instance
from harness.datasets.instance_task import InstanceTask
from harness.datasets.row_command import parser_of
from harness.datasets.test_runners import files_of_tests
from harness.diffs import DiffError
from harness.evaluation.grading import Grader, fault_of
from harness.evaluation.harbor_grading import OpenTask, parts_of
from harness.evaluation.logs import resolved_by, test_log
from pytest_ssr.errors import SsrError
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.log_parsers import LOG_PARSERS, parse_log
from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.execution.test_runners import ProgramRunner, PytestRunner
from pytest_ssr.grading import grade_patch, unsolved_state
from pytest_ssr.patch import Patch
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.test_run import Limit, Outcome, RunStatus, SuiteRun

_AFTER = "status=$?; sleep 0.2; exit $status"
"""Evaluation scripts restore the test files after the tests; what tests have left behind goes on meanwhile."""
_PARSERS = {"django": "parse_log_django", "unittest": "parse_log_unittest", "sympy": "parse_log_sympy"}
_METHOD = re.compile(r"(\w+) \((.+)\.\1\)")
_GOOD = (Outcome.PASSED, Outcome.XFAILED)
_SCRIPT_S, _LEAST_S = 60.0, 1.0


def row_sealing(grader: Grader, instance: Instance, task: InstanceTask, *, deadline: float) -> Sealing:
    """Try forgeries on a row, whose own verifier is SWE-bench's rule on the log of its tests.

    deadline: a time of `time.monotonic`, after which no further forgery is tried.
    """
    verifier = _RowVerifier(instance, task)
    try:
        works = verifier.accepts(task.runner.original, deadline)
        leaks = row_leaks(task) if time.monotonic() < deadline else ()
    except SsrError as error:
        return Sealing(verifier=TESTS, problem=fault_of(error, instance))
    if not works:
        # It does not read the log of this row's tests as it should, so that its verdicts mean nothing.
        verifier = replace(verifier, is_known=False)
    results = tuple(_row_results(grader, verifier, deadline))
    is_other = not results and time.monotonic() < deadline
    problem = Reason(ReasonCode.OTHER_LANGUAGE, "the kit has no forgery for it") if is_other else None
    return Sealing(results, leaks, TESTS, problem)


def _row_results(grader: Grader, verifier: _RowVerifier, deadline: float) -> Iterator[ForgeryResult]:
    for forgery in row_forgeries():
        patch = verifier.forged(forgery)
        if patch is None:
            continue
        if time.monotonic() >= deadline:
            return
        grader.report(f"{verifier.instance.id}: trying the forgery {forgery.name}")
        own = verifier.accepts_patch(patch, deadline)
        ours = _grade(grader, verifier.task, patch) if time.monotonic() < deadline else None
        if own is not None or ours is not None:
            yield ForgeryResult(forgery.name, own, ours)


def _grade(grader: Grader, task: InstanceTask, patch: Patch) -> bool | None:
    """Return the strict verdict of this package."""
    try:
        return grade_patch(
            task.runner.scoped(),
            task.artifact,
            patch,
            fail_to_pass=task.tests.failing,
            pass_to_pass=task.tests.passing,
            like_s=task.original_s,
            full=grader.full,
        ).resolved
    except SsrError:
        return None


@dataclass(frozen=True, slots=True)
class _RowVerifier:
    """The verifier that a row has in SWE-bench: its tests run on restored test files, and their log decides."""

    instance: Instance
    task: InstanceTask
    is_known: bool = True
    """Whether its verdicts are to be trusted."""

    def forged(self, forgery: PatchForgery) -> Patch | None:
        """Return a forgery as a patch of the tree that solvers get; None if it cannot be made for this row."""
        runner = self.task.runner
        modules = self._modules()
        if forgery.needs_pytest and not isinstance(runner.test_runner, PytestRunner):
            return None
        if (forgery.module or isinstance(runner.test_runner, CommandRunner)) and not modules:
            return None
        start = unsolved_state(runner, self.task.artifact)
        ids = [self.instance.given_ids.get(i, i) for i in (*self.instance.fail_to_pass, *self.instance.pass_to_pass)]
        return start.replace(forgery.changes(start, modules, ids)).patch_from(start)

    def _modules(self) -> list[str]:
        """Return the modules that the solution changes; if it changes none, those that it adds."""
        start = unsolved_state(self.task.runner, self.task.artifact)
        paths = self.task.artifact.bug.paths
        modules = [p for p in paths if p.endswith(".py") and not is_test_surface(p)]
        return [p for p in modules if start.entry(p) is not None] or modules

    def accepts_patch(self, patch: Patch, deadline: float) -> bool | None:
        """Return whether it accepts a patch; None without a verdict."""
        try:
            state = unsolved_state(self.task.runner, self.task.artifact).apply(patch).restore(self._restored)
            return self.accepts(state, deadline) if self.is_known else None
        except SsrError:
            return None

    @property
    def _restored(self) -> set[str]:
        """The files that evaluation scripts restore: those of the test patch, else all of the tests."""
        return set(self.instance.test_patch.paths or self.task.artifact.test_files)

    def accepts(self, state: CodebaseState, deadline: float) -> bool | None:
        """Return whether it accepts a tree; None if the deadline has ended its run. Raises SandboxError."""
        runner, instance, tests = self.task.runner, self.instance, self.task.tests
        if isinstance(runner.test_runner, CommandRunner):
            run = runner.fresh(state, self._files, like_s=self.task.original_s, verbose=True)
            return tests.failing | tests.passing <= run.passing
        run = self._run(state, _remaining_s(deadline))
        if run.limit is Limit.MACHINE_MEMORY or (run.limit is Limit.WALL_TIME and time.monotonic() >= deadline):
            return None
        pass_to_pass = [i for i in instance.pass_to_pass if i not in tests.set_aside]
        if isinstance(runner.test_runner, PytestRunner):
            return resolved_by(test_log(run), instance.fail_to_pass, pass_to_pass)
        outcomes = self._outcomes(run)
        repaired = all(outcomes.get(instance.given_ids.get(i, i)) in _GOOD for i in instance.fail_to_pass)
        kept = (*_GOOD, Outcome.SKIPPED)
        return repaired and all(outcomes.get(instance.given_ids.get(i, i)) in kept for i in pass_to_pass)

    def _outcomes(self, run: SuiteRun) -> Mapping[str, Outcome]:
        """Return the outcomes that a log of another runner than pytest shows."""
        parser = parser_of(self.instance) or _PARSERS.get(self.task.runner.test_runner.name, "")
        outcomes = parse_log(parser, run.output) if parser in LOG_PARSERS else {}
        # Python 3.11 and later print `test_a (module.Class.test_a)`, and rows have the form of earlier ones.
        return {**{_METHOD.sub(r"\1 (\2)", name): outcome for name, outcome in outcomes.items()}, **outcomes}

    @property
    def _files(self) -> list[str]:
        runner = self.task.runner
        return files_of_tests(self.instance, runner.test_runner, runner.snapshot.directory)

    def _run(self, state: CodebaseState, seconds: float) -> SuiteRun:
        """Run the tests as an evaluation script does, without a reporter, in a fresh sandbox."""
        runner = self.task.runner
        limits = runner.limits_after(self.task.original_s)
        limits = replace(limits, wall_s=min(limits.wall_s, seconds))
        command = f"{shlex.join(self._argv())} 2>&1; {_AFTER}"
        with runner.open(state) as sandbox:
            provide_interpreter(sandbox, runner.interpreter)
            environment = {**dict(runner.test_runner.environment), **run_environment(sandbox, runner.interpreter)}
            done = sandbox.exec(["bash", "-c", command], limits=limits, env=environment)
        return SuiteRun(
            RunStatus.COMPLETED,
            output=done.stdout,
            exit_code=done.exit_code,
            limit=done.limit,
            seconds=done.seconds,
        )

    def _argv(self) -> list[str]:
        runner = self.task.runner
        python, test_runner = str(runner.interpreter.executable), runner.test_runner
        if isinstance(test_runner, ProgramRunner):
            labels = dict.fromkeys(test_runner.label(path) for path in self._files)
            return [python, *test_runner.program, *test_runner.verbose_option, *labels]
        return [python, "-m", "pytest", "-rA", *runner.pytest_options, *self._files]


def harbor_sealing(opened: OpenTask, *, deadline: float, forgeries: Sequence[ScriptForgery] | None = None) -> Sealing:
    """Try forgeries on a task directory of Harbor: scripts that run as the agent, before the task's own verifier.

    deadline: a time of `time.monotonic`, after which no further forgery is tried. forgeries: None for the whole kit.
    """
    is_separate = opened.trial.task.steps[-1].verification.place is not None
    verifier = SEPARATE if is_separate else SHARED
    try:
        leaks: tuple[Leak, ...] = task_leaks(opened)
    except SsrError as error:
        return Sealing(verifier=verifier, problem=fault_of(error, opened.instance))
    tried = [*_of_solution(opened), *task_forgeries(is_separate=is_separate)] if forgeries is None else forgeries
    return Sealing(tuple(_task_results(opened, tried, deadline)), leaks, verifier)


def _of_solution(opened: OpenTask) -> list[ScriptForgery]:
    """Return the forgeries that are made from the reference solution of the last step; none without one."""
    last = parts_of(opened.reference, len(opened.trial.task.steps))[-1]
    return [solution_in_comments(Patch.parse(last.encode("utf-8", "surrogateescape")))] if last.strip() else []


def _task_results(opened: OpenTask, forgeries: Iterable[ScriptForgery], deadline: float) -> Iterator[ForgeryResult]:
    known: dict[str, bool | None] = {}
    for forgery in forgeries:
        if time.monotonic() >= deadline:
            return
        result = _task_result(opened, forgery, deadline, known)
        if result is not None:
            yield result


def _task_result(
    opened: OpenTask, forgery: ScriptForgery, deadline: float, known: dict[str, bool | None]
) -> ForgeryResult | None:
    """Return what became of a forgery; None if it could not be tried. known: our verdicts by patch."""
    seconds = _remaining_s(deadline)
    try:
        forged = opened.forge(forgery.script, script_s=min(_SCRIPT_S, seconds), verifier_s=seconds)
    except SsrError:
        return None
    if forged.patch not in known and time.monotonic() < deadline:
        known[forged.patch] = _graded(opened, forged.patch, _remaining_s(deadline))
    return ForgeryResult(forgery.name, forged.accepted, known.get(forged.patch))


def _remaining_s(deadline: float) -> float:
    return max(_LEAST_S, deadline - time.monotonic())


def _graded(opened: OpenTask, patch: str, seconds: float) -> bool | None:
    """Return this package's verdict on a patch; an empty one was refused when the task was opened."""
    if not patch.strip():
        return False
    try:
        grade = replace(opened, trial=opened.trial.within(seconds)).grade(patch)
    except DiffError:
        return False
    except SsrError:
        return None
    return None if grade.reason.code is ReasonCode.TIMED_OUT and not grade.resolved else grade.resolved
