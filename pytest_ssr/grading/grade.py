"""A predicted patch in, a grade out, judged on a tree made from the pristine snapshot.

Order (arXiv 2512.18552, section 2.4): original, bug, weakening, predicted patch, then the oracle tests and all of the
test surface as they were in the original; then the artifact's script and parser, and pytest itself, by exact ids.
What passes so far is run once more, blind: with tests that hold nothing of what they expect, and with other inputs.
What they compute is compared on the host. A patch that only pretends fails there.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, ProjectError, SandboxError
from pytest_ssr.execution.root import root_of
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.bases import rewritten
from pytest_ssr.grading.blind.run import BlindResult, BlindTests
from pytest_ssr.grading.evidence import Evidence, RecordedTests, contradiction, evidence_of, other_tests
from pytest_ssr.grading.regressions import KnownBaseline, regressions
from pytest_ssr.grading.repaired import compiled_code, repaired_state
from pytest_ssr.grading.result import Grade
from pytest_ssr.outcomes import SuiteRun, some
from pytest_ssr.patch import Patch
from pytest_ssr.reasons import Flag, FlagCode, Reason, ReasonCode
from pytest_ssr.sandbox.cgroup import kills_for_memory
from pytest_ssr.sandbox.folders import require_room

LEAST_S = 5.0
"""Seconds that tests count as taking at least on the original: the limit that follows leaves room on a busy machine."""
_TRIES = 2
_DRAWN_FOR = 8
"""Grades of one artifact that have the same inputs: others cost four runs."""


class _OutOfMemoryError(SandboxError):
    """The kernel killed a process for want of memory; the tests may not have failed by themselves."""


def grade_patch(
    bench: Workbench,
    artifact: BugArtifact,
    patch: Patch,
    *,
    fail_to_pass: Collection[str],
    pass_to_pass: Collection[str],
    like_s: float | None = None,
    trusted: bool = False,
    refuse_tests: bool = False,
    full: bool = False,
    baseline: KnownBaseline | None = None,
) -> Grade:
    """Grade one patch by the recorded ids; an id that did not run counts as not passed.

    like_s: seconds the oracle tests take on the original, from which the time limit of each run follows. trusted: the
    patch is our own, and is believed. refuse_tests: a patch that touches the test surface is unresolved, instead
    of graded without that part. full: run all tests, in the order of collection; otherwise FAIL_TO_PASS tests run
    first, and the run ends at the first recorded test that fails. baseline: gives the project's baseline, by which
    tests of other files are run that reach what the patch changed; None: the recorded tests alone decide. A sandbox
    that breaks twice is no grade, and nothing is raised for it.
    """
    if not fail_to_pass:
        raise ArtifactError("the artifact records no FAIL_TO_PASS test; validate it first")
    if like_s is not None and not trusted:
        like_s = max(like_s, LEAST_S)
    recorded = _recorded(artifact, fail_to_pass, pass_to_pass)
    grading = _Grading(bench, recorded, like_s, full=full, trusted=trusted, baseline=baseline)
    try:
        state, dropped = repaired_state(bench, artifact, patch)
    except ArtifactError as error:
        return grading.refused(ReasonCode.PATCH_DOES_NOT_APPLY, str(error))
    flags: tuple[Flag, ...] = (Flag(FlagCode.TESTS_RESTORED, dropped),) if dropped else ()
    if dropped and refuse_tests:
        return grading.refused(ReasonCode.REFUSED, some(dropped), flags)
    if compiled := compiled_code(state, patch.paths):
        return grading.refused(ReasonCode.ADDS_COMPILED_CODE, some(compiled), flags)
    if not trusted:
        if changed := grading.rewritten(state):
            return grading.refused(ReasonCode.CHANGES_TESTS, some(changed), flags)
    return _graded(grading, state, flags)


def _recorded(artifact: BugArtifact, fail_to_pass: Collection[str], pass_to_pass: Collection[str]) -> RecordedTests:
    files = [p for p in artifact.test_files if p.endswith(".py") and not p.endswith("conftest.py")]
    return RecordedTests(artifact, files, frozenset(fail_to_pass), frozenset(pass_to_pass))


def _graded(grading: _Grading, state: CodebaseState, flags: tuple[Flag, ...]) -> Grade:
    """Make the runs, again if the sandbox broke or the machine had no memory left."""
    reason = Reason(ReasonCode.SANDBOX_FAILED)
    for _ in range(_TRIES):
        killed = kills_for_memory()
        try:
            grade = grading.grade(state, flags)
            if not grade.resolved:
                _require_a_sound_machine(grade.reason.code, killed)
            return grade
        except _OutOfMemoryError as error:
            reason = Reason(ReasonCode.OUT_OF_MEMORY, str(error))
        except SandboxError as error:
            reason = Reason(ReasonCode.SANDBOX_FAILED, str(error))
    return Grade(grading.name, None, reason, flags=flags)


def _failure_of(blind: BlindResult) -> Reason | None:
    if blind.wrong:
        return Reason(ReasonCode.FORGED, some(blind.wrong))
    return Reason(ReasonCode.NOT_REPAIRED, some(blind.not_repaired)) if blind.not_repaired else None


def _require_a_sound_machine(code: ReasonCode, killed: int) -> None:
    """Raise SandboxError where honest tests may have failed for want of room or memory that is not theirs to answer."""
    require_room()
    if code is ReasonCode.OUT_OF_MEMORY:
        raise _OutOfMemoryError("the kernel has killed a process of the tests")
    if kills_for_memory() > killed and code is not ReasonCode.MEMORY_EXCEEDED:
        raise _OutOfMemoryError("the kernel has killed a process of this machine")


@dataclass(frozen=True, slots=True)
class _Opinion:
    """What further runs say about a state on which all recorded tests pass."""

    failure: Reason | None = None
    """Why the outcomes are not believed."""
    unchecked: tuple[str, ...] = ()
    unspecified: tuple[str, ...] = ()
    unvaried: tuple[str, ...] = ()


class _Grading:
    """What one grade needs: the artifact, its tests, and the runs on the original to compare with."""

    def __init__(
        self,
        bench: Workbench,
        tests: RecordedTests,
        like_s: float | None,
        *,
        full: bool,
        trusted: bool,
        baseline: KnownBaseline | None,
    ) -> None:
        self._bench, self._tests, self._like_s = bench, tests, like_s
        self._full, self._trusted, self._baseline = full, trusted, baseline
        bench.root = root_of(tests.artifact.script)
        self._artifact, self._files = tests.artifact, list(tests.files)
        self._fail_to_pass, self._pass_to_pass = tests.fail_to_pass, tests.pass_to_pass
        self.name = tests.artifact.content_id(bench.snapshot.tree_hash)

    def refused(self, code: ReasonCode, detail: str, flags: tuple[Flag, ...] = ()) -> Grade:
        """Return the grade of a patch for which no test is run."""
        return Grade(self.name, False, Reason(code, detail), tests=False, flags=flags)

    def rewritten(self, state: CodebaseState) -> list[str]:
        """Return the tests that a state has otherwise than the original, in files that are no test surface."""
        original = self._bench.original
        return rewritten(original, original.apply(self._artifact.bug), state, self._fail_to_pass | self._pass_to_pass)

    def grade(self, state: CodebaseState, flags: tuple[Flag, ...]) -> Grade:
        """Make the runs; raises SandboxError."""
        # A trusted patch's run may be one that a check has made already, and is always whole.
        full = self._full or self._trusted
        evidence = evidence_of(self._bench, self._tests, state, like_s=self._like_s, fresh=not self._trusted, full=full)
        opinion = _Opinion(evidence.failure)
        if evidence.failure is None and not self._trusted:
            opinion = self._opinion(state, evidence)
        total = f"{len(self._fail_to_pass)} FAIL_TO_PASS, {len(self._pass_to_pass)} PASS_TO_PASS"
        return Grade(
            self.name,
            opinion.failure is None,
            opinion.failure or Reason(ReasonCode.RESOLVED, total),
            tests=evidence.failure is None,
            fail_to_pass={i: str(evidence.statuses[i]) for i in sorted(self._fail_to_pass)},
            pass_to_pass={i: str(evidence.statuses[i]) for i in sorted(self._pass_to_pass)},
            flags=(*flags, Flag(FlagCode.UNCHECKED, opinion.unchecked)) if opinion.unchecked else flags,
            unchecked=opinion.unchecked,
            unspecified=opinion.unspecified,
            unvaried=opinion.unvaried,
        )

    def _opinion(self, state: CodebaseState, evidence: Evidence) -> _Opinion:
        """Return whether a run in which all recorded tests pass is believed."""
        failure = other_tests(evidence.run, self._reference()) or contradiction(evidence.run)
        if failure is not None:
            return _Opinion(failure)
        blind = self._blind(state)
        failure = _failure_of(blind) or self._regression(state)
        return _Opinion(failure, blind.unchecked, blind.unspecified, blind.unvaried)

    def _regression(self, state: CodebaseState) -> Reason | None:
        if self._baseline is None or not state.changes:
            return None
        try:
            baseline = self._baseline()
        except ProjectError:
            # The suite as a whole cannot be run; the recorded tests can.
            return None
        failing = regressions(self._bench, baseline, self._files, state)
        return Reason(ReasonCode.REGRESSION, some(failing)) if failing else None

    def _reference(self) -> SuiteRun:
        run, _ = self._bench.suite(self._bench.original, self._files, like_s=self._like_s, fresh=True)
        return run

    def _blind(self, state: CodebaseState) -> BlindResult:
        """Return what the tests compute on a state without what they expect, and with other inputs."""
        tests = (self._fail_to_pass, self._pass_to_pass)
        key = ("blind", self._artifact.bug.data, tuple(self._files), *tests, self._bench.root)
        found, grades = self._bench.memo.get(key, (None, _DRAWN_FOR))
        if grades >= _DRAWN_FOR:
            buggy = self._bench.original.apply(self._artifact.bug)
            found, grades = BlindTests(self._bench, buggy, self._files, *tests, random.SystemRandom()), 0
        self._bench.memo[key] = found, grades + 1
        blind: BlindTests = found
        return blind.result(self._bench, state)
