"""The evidence run: the oracle tests as they are, by our own reporter; then the artifact's script if it is not ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.own_script import is_own
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.status_run import StatusRun
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.result import TestStatus
from pytest_ssr.outcomes import Limit, Outcome, RunStatus, SuiteRun, some
from pytest_ssr.reasons import Reason, ReasonCode

_BY_LIMIT = {
    Limit.WALL_TIME: ReasonCode.TIMED_OUT,
    Limit.MEMORY: ReasonCode.MEMORY_EXCEEDED,
    Limit.MACHINE_MEMORY: ReasonCode.OUT_OF_MEMORY,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the recorded tests did on a state."""

    run: SuiteRun
    """The run of pytest."""
    statuses: Mapping[str, TestStatus]
    """Of each recorded test, by its id."""
    failure: Reason | None
    """Why the tests do not pass; None: all of them pass."""


@dataclass(frozen=True, slots=True)
class RecordedTests:
    """The tests that decide about patches for an artifact."""

    artifact: BugArtifact
    files: Sequence[str]
    """Files of tests, relative to the root."""
    fail_to_pass: frozenset[str]
    pass_to_pass: frozenset[str]

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, sorted, those of FAIL_TO_PASS first."""
        return (*sorted(self.fail_to_pass), *sorted(self.pass_to_pass))


def evidence_of(
    bench: Workbench,
    tests: RecordedTests,
    state: CodebaseState,
    *,
    like_s: float | None,
    fresh: bool,
    full: bool,
) -> Evidence:
    """Run the tests on a state; raises SandboxError.

    like_s: seconds that they take on the original. fresh: in a fresh process. full: all tests in the order of
    collection, else FAIL_TO_PASS first and none after the first recorded test that fails.
    """
    if full:
        run, _ = bench.suite(state, tests.files, like_s=like_s, fresh=fresh)
    else:
        selection = Selection(leading=tests.fail_to_pass, stop_after=1, counted=tests.ids)
        run = bench.fresh(state, tests.files, selection=selection, like_s=like_s)
    statuses = {i: _status(i, run) for i in tests.ids}
    failure = fault_of(run) or _missed(statuses)
    # Our own script would run the same tests in the same way.
    if failure is None and not is_own(tests.artifact.script, tests.artifact.parser):
        script, _ = bench.script(state, tests.artifact, like_s=like_s)
        statuses = {i: _script_status(i, script) for i in tests.ids}
        failure = _script_failure(script, statuses)
    return Evidence(run, statuses, failure)


def fault_of(run: SuiteRun) -> Reason | None:
    """Return why a run proves nothing about its tests; None if pytest ended by itself."""
    if not run.fault:
        return None
    code = ReasonCode.RUN_FAILED if run.limit is None else _BY_LIMIT.get(run.limit, ReasonCode.LIMIT_EXCEEDED)
    return Reason(code, run.fault)


def contradiction(run: SuiteRun) -> Reason | None:
    """Return why the exit status of a run and its results cannot both be true; None if they can."""
    failed = sum(r.outcome in (Outcome.FAILED, Outcome.ERROR) for r in run.results.values())
    if run.status is not RunStatus.COMPLETED or bool(failed) == (run.exit_code == 1):
        return None
    return Reason(ReasonCode.EXIT_STATUS_CONTRADICTS, f"exit status {run.exit_code}, {failed} failures")


def other_tests(run: SuiteRun, reference: SuiteRun) -> Reason | None:
    """Return how the tests that a run collected differ from those of the original; None if they are the same."""
    usual, found = set(reference.collected), set(run.collected)
    if usual == found and len(reference.collected) == len(run.collected):
        return None
    gone, new = usual - found, found - usual
    which = f"vanished: {some(gone)}" if gone else f"appeared: {some(new)}" if new else "some appear twice"
    return Reason(ReasonCode.TESTS_DIFFER, which)


def _status(name: str, run: SuiteRun) -> TestStatus:
    if name in run.passing:
        return TestStatus.PASSED
    if name in run.results or name == run.unfinished:
        return TestStatus.FAILED
    return TestStatus.NOT_RUN if name in run.collected else TestStatus.MISSING


def _script_status(name: str, script: StatusRun) -> TestStatus:
    if name in script.passing:
        return TestStatus.PASSED
    return TestStatus.FAILED if name in script.statuses else TestStatus.MISSING


def _script_failure(script: StatusRun, statuses: Mapping[str, TestStatus]) -> Reason | None:
    if script.fault:
        limit = script.limit
        code = ReasonCode.SCRIPT_FAILED if limit is None else _BY_LIMIT.get(limit, ReasonCode.LIMIT_EXCEEDED)
        return Reason(code, script.fault)
    if script.contradiction:
        return Reason(ReasonCode.SCRIPT_CONTRADICTS, script.contradiction)
    return _missed(statuses)


def _missed(statuses: Mapping[str, TestStatus]) -> Reason | None:
    not_run: Collection[str] = [i for i, s in statuses.items() if s is TestStatus.NOT_RUN]
    missed = [i for i, s in statuses.items() if s not in (TestStatus.PASSED, TestStatus.NOT_RUN)]
    if not missed and not not_run:
        return None
    after = f"; {len(not_run)} were not run" if not_run else ""
    return Reason(ReasonCode.TESTS_FAIL, f"{len(missed)} of {len(statuses)}: {some(missed)}{after}")
