"""Grade a predicted patch on a tree built from the pristine snapshot.

Order (arXiv 2512.18552, section 2.4): original, bug, weakening, predicted patch, then the oracle tests and the whole
test surface as in the original; then the artifact's script and parser, and pytest itself, by exact ids. If everything
passes so far, the tests run once more, blind: without the values they expect, and with other inputs. The values they
compute are compared on the host. A patch that only pretends to be a repair fails there.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from pytest_ssr.errors import ArtifactError, ProjectError, SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_runner import for_artifact
from pytest_ssr.grading.blind.measure import measure_reference
from pytest_ssr.grading.blind.reference import BlindReference
from pytest_ssr.grading.blind.run import BlindResult, BlindTests
from pytest_ssr.grading.evidence import (
    MIN_DURATION_S,
    Evidence,
    RecordedTests,
    contradiction,
    evidence_of,
    other_tests,
    unpassed,
)
from pytest_ssr.grading.regressions import BaselineSource, regressions
from pytest_ssr.grading.repaired_state import compiled_code, repaired_state
from pytest_ssr.grading.result import Grade, TestStatus
from pytest_ssr.grading.test_lookup import rewritten
from pytest_ssr.patch import Patch
from pytest_ssr.project.file_roles import can_hold_tests
from pytest_ssr.project.pytest_config import options_of_script
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode
from pytest_ssr.records.test_run import abbreviate
from pytest_ssr.sandbox.filesystem.workdirs import require_disk_space
from pytest_ssr.sandbox.supervision.cgroup import oom_kill_count

_ATTEMPTS = 2
_GRADES_PER_DRAW = 8
"""Grades of one artifact that share the same inputs: drawing others costs four runs."""
_MOST_RECENT = 8
"""Number of references kept in memory, so that grades do not have to parse them."""

_TIMED_OUT = Reason(ReasonCode.TIMED_OUT, "the run without expected values")


class _OutOfMemoryError(SandboxError):
    """The kernel killed a process because memory ran out; the tests may not have failed by themselves."""


def grade_patch(
    runner: Runner,
    artifact: BugArtifact,
    patch: Patch,
    *,
    fail_to_pass: Collection[str],
    pass_to_pass: Collection[str],
    like_s: float | None = None,
    surface: Collection[str] = (),
    trusted: bool = False,
    refuse_tests: bool = False,
    full: bool = False,
    verbose: bool = False,
    baseline: BaselineSource | None = None,
) -> Grade:
    """Grade one patch by the recorded ids; an id that did not run counts as not passed.

    like_s: seconds the oracle tests take on the original; the time limit of each run is derived from it.
    surface: files that belong to the tests although their names do not show it. trusted: the patch is our own, and is
    not checked further. refuse_tests: a patch that touches the test surface is unresolved,
    instead of graded without that part. full: run all tests in collection order; otherwise FAIL_TO_PASS tests run
    first, and the run stops at the first recorded test that fails. verbose: run all tests, and keep pytest's output in
    `run` of the grade. baseline: returns the project's baseline, which
    selects the tests of other files that reach what the patch changed; None: only the recorded tests decide. If the
    sandbox fails twice, `resolved` of the grade is None, and nothing is raised.
    """
    if not fail_to_pass:
        raise ArtifactError("the artifact records no FAIL_TO_PASS test; validate it first")
    if like_s is not None and not trusted:
        like_s = max(like_s, MIN_DURATION_S)
    recorded = _recorded(artifact, fail_to_pass, pass_to_pass)
    grader = _Grader(runner, recorded, like_s, full=full, verbose=verbose, trusted=trusted, baseline=baseline)
    try:
        state, dropped = repaired_state(runner, artifact, patch, surface)
    except ArtifactError as error:
        return grader.refused(ReasonCode.PATCH_DOES_NOT_APPLY, str(error))
    flags: tuple[Flag, ...] = (Flag(FlagCode.TESTS_RESTORED, dropped),) if dropped else ()
    if dropped and refuse_tests:
        return grader.refused(ReasonCode.REFUSED, abbreviate(dropped), flags)
    if compiled := compiled_code(state, patch.paths):
        return grader.refused(ReasonCode.ADDS_COMPILED_CODE, abbreviate(compiled), flags)
    if not trusted:
        if changed := grader.rewritten(state):
            return grader.refused(ReasonCode.CHANGES_TESTS, abbreviate(changed), flags)
    return _graded(grader, state, flags)


def _recorded(artifact: BugArtifact, fail_to_pass: Collection[str], pass_to_pass: Collection[str]) -> RecordedTests:
    # Documents can have tests, too, beside what tests only read.
    with_tests = {i.partition("::")[0] for i in (*fail_to_pass, *pass_to_pass)}
    files = [p for p in artifact.test_files if can_hold_tests(p) or p in with_tests]
    return RecordedTests(artifact, files, frozenset(fail_to_pass), frozenset(pass_to_pass))


def _graded(grader: _Grader, state: CodebaseState, flags: tuple[Flag, ...]) -> Grade:
    """Run the tests, and retry if the sandbox failed or the machine ran out of memory."""
    reason = Reason(ReasonCode.SANDBOX_FAILED)
    for _ in range(_ATTEMPTS):
        killed = oom_kill_count()
        try:
            grade = grader.grade(state, flags)
            if not grade.resolved:
                _require_healthy_machine(grade.reason.code, killed)
            if grade.reason.code is ReasonCode.TIMED_OUT and grade.fail_to_pass and not grade.tests:
                grader.require_pace()
            return grade
        except _OutOfMemoryError as error:
            reason = Reason(ReasonCode.OUT_OF_MEMORY, str(error))
        except SandboxError as error:
            reason = Reason(ReasonCode.SANDBOX_FAILED, str(error))
    return Grade(grader.name, None, reason, flags=flags)


def _failure_of(blind: BlindResult) -> Reason | None:
    if blind.timed_out:
        return _TIMED_OUT
    if blind.wrong:
        return Reason(ReasonCode.FORGED, abbreviate(blind.wrong))
    return Reason(ReasonCode.NOT_REPAIRED, abbreviate(blind.not_repaired)) if blind.not_repaired else None


def _require_healthy_machine(code: ReasonCode, killed: int) -> None:
    """Raise SandboxError when tests may have failed because the machine ran out of disk space or memory."""
    require_disk_space()
    if code is ReasonCode.OUT_OF_MEMORY:
        raise _OutOfMemoryError("the kernel has killed a process of the tests")
    if oom_kill_count() > killed and code is not ReasonCode.MEMORY_EXCEEDED:
        raise _OutOfMemoryError("the kernel has killed a process of this machine")


@dataclass(frozen=True, slots=True)
class _CrossCheck:
    """The result of further runs on a state on which all recorded tests pass."""

    failure: Reason | None = None
    """Why the outcomes are not trusted."""
    values: BlindResult = field(default_factory=BlindResult)
    unmoved: tuple[str, ...] = ()
    fail_to_pass: int = 0
    """The number of FAIL_TO_PASS tests."""

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What the values do not prove."""
        by_code = {
            FlagCode.UNCHECKED: self.values.unchecked,
            FlagCode.UNSPECIFIED: self.values.unspecified,
            # If other inputs or surroundings reveal the bug in some tests, the same repair makes the others pass.
            FlagCode.UNVARIED: self.values.unvaried if len(self.values.unvaried) == self.fail_to_pass else (),
            FlagCode.UNMOVED: self.unmoved if len(self.unmoved) == self.fail_to_pass else (),
            FlagCode.REPLACES: self.values.replaced,
            FlagCode.ONE_SIDED: self.values.one_sided,
        }
        return tuple(Flag(code, details) for code, details in by_code.items() if details)


class _Grader:
    """Grades one patch: holds the artifact, its tests, and the reference runs on the original."""

    def __init__(
        self,
        runner: Runner,
        tests: RecordedTests,
        like_s: float | None,
        *,
        full: bool,
        verbose: bool = False,
        trusted: bool,
        baseline: BaselineSource | None,
    ) -> None:
        own = replace(runner, pytest_options=options_of_script(tests.artifact.script))
        self._runner = for_artifact(own, tests.artifact)
        self._tests, self._like_s = tests, like_s
        self._full, self._verbose, self._trusted, self._baseline = full, verbose, trusted, baseline
        self._artifact, self._files = tests.artifact, list(tests.files)
        self._fail_to_pass, self._pass_to_pass = tests.fail_to_pass, tests.pass_to_pass
        self.name = tests.artifact.content_id(runner.snapshot.tree_hash)

    def refused(self, code: ReasonCode, detail: str, flags: tuple[Flag, ...] = ()) -> Grade:
        """Return the grade of a patch that is rejected without running a test."""
        return Grade(self.name, False, Reason(code, detail), tests=False, flags=flags)

    def rewritten(self, state: CodebaseState) -> list[str]:
        """Return the tests that a state changes in files outside the test surface."""
        original = self._runner.original
        return rewritten(original, original.apply(self._artifact.bug), state, self._fail_to_pass | self._pass_to_pass)

    def grade(self, state: CodebaseState, flags: tuple[Flag, ...]) -> Grade:
        """Run the tests and return the grade; raises SandboxError."""
        # The runs without expected values come first: what a run leaves in the machine, such as files in the page
        # cache, could carry the answers to the next one.
        blind = self._blind_tests()
        values = BlindResult()
        if blind is not None:
            values = blind.result(self._runner, state, early=not self._verbose)
        if values.is_partial and values.failed and not self._full:
            return self._failed(values.failed, flags)
        if blind is not None and values.timed_out and not self._verbose:
            blind.confirmed(self._runner, values)
            return Grade(self.name, False, _TIMED_OUT, tests=False, flags=flags)
        # The run of a trusted patch may be cached from a check, and is always complete.
        evidence = evidence_of(
            self._runner,
            self._tests,
            state,
            like_s=self._like_s,
            fresh=not self._trusted,
            full=self._full or self._trusted,
            verbose=self._verbose,
        )
        cross_check = _CrossCheck(evidence.failure)
        if evidence.failure is None and not self._trusted:
            cross_check = self._cross_check(state, evidence, blind, values)
        if evidence.run.log_parser:
            flags += (Flag(FlagCode.LOG_EVIDENCE, (evidence.run.log_parser,)),)
        total = f"{len(self._fail_to_pass)} FAIL_TO_PASS, {len(self._pass_to_pass)} PASS_TO_PASS"
        return Grade(
            self.name,
            cross_check.failure is None,
            cross_check.failure or Reason(ReasonCode.RESOLVED, total),
            tests=evidence.failure is None,
            fail_to_pass={i: str(evidence.statuses[i]) for i in sorted(self._fail_to_pass)},
            pass_to_pass={i: str(evidence.statuses[i]) for i in sorted(self._pass_to_pass)},
            flags=(*flags, *cross_check.flags),
            unchecked=cross_check.values.unchecked,
            unspecified=cross_check.values.unspecified,
            unvaried=cross_check.values.unvaried,
            unmoved=cross_check.unmoved,
            run=evidence.run if self._verbose else None,
        )

    def _failed(self, failing: Collection[str], flags: tuple[Flag, ...]) -> Grade:
        """Return the grade of a patch with whose values FAIL_TO_PASS tests fail; the others were not run."""
        statuses = {i: TestStatus.FAILED if i in failing else TestStatus.NOT_RUN for i in self._tests.ids}
        return Grade(
            self.name,
            False,
            unpassed(statuses) or Reason(ReasonCode.TESTS_FAIL),
            tests=False,
            fail_to_pass={i: str(statuses[i]) for i in sorted(self._fail_to_pass)},
            pass_to_pass={i: str(statuses[i]) for i in sorted(self._pass_to_pass)},
            flags=flags,
        )

    def require_pace(self) -> None:
        """Raise SandboxError if the tests do not end in time on the original either: the machine is the cause."""
        original = self._runner.original
        # Not complete, because a complete run may be one from before.
        evidence = evidence_of(self._runner, self._tests, original, like_s=self._like_s, fresh=True, full=False)
        if evidence.failure is not None and evidence.failure.code is ReasonCode.TIMED_OUT:
            raise SandboxError("the original's tests did not end in time: the machine is too slow, or too busy")

    def _blind_tests(self) -> BlindTests | None:
        """Return the blind tests; None if a patch is not checked further, or only a log says which tests pass."""
        if self._trusted or not self._runner.test_runner.reporter:
            return None
        return BlindTests(self._reference(), self._fail_to_pass, self._pass_to_pass)

    def _cross_check(
        self, state: CodebaseState, evidence: Evidence, blind: BlindTests | None, values: BlindResult
    ) -> _CrossCheck:
        """Check whether a run in which all recorded tests pass can be trusted."""
        if blind is None:
            # A command runs its tests as they are, and a log may name more than tests.
            return _CrossCheck(contradiction(evidence.run), BlindResult(unchecked=self._tests.ids))
        failure = other_tests(evidence.run, blind.collected) or contradiction(evidence.run)
        if failure is not None:
            return _CrossCheck(failure)
        is_first = bool(values.wrong)
        values = blind.confirmed(self._runner, values)
        if is_first and not values.wrong:
            # The original no longer computes what it did; other inputs still decide.
            values = blind.confirmed(self._runner, blind.result(self._runner, state))
        failure = _failure_of(values) or self._regression(state)
        return _CrossCheck(failure, values, blind.unmoved, len(self._fail_to_pass))

    def _regression(self, state: CodebaseState) -> Reason | None:
        if self._baseline is None or not state.changes:
            return None
        try:
            baseline = self._baseline()
        except ProjectError:
            # The whole suite cannot be run; the recorded tests can.
            return None
        failing = regressions(self._runner, baseline, self._files, state)
        return Reason(ReasonCode.REGRESSION, abbreviate(failing)) if failing else None

    def _reference(self) -> BlindReference:
        """Return the blind tests and what they compute on the original; after a few grades, other inputs are drawn."""
        runner, store = self._runner, self._runner.reference_store
        tests = (tuple(sorted(self._fail_to_pass)), tuple(sorted(self._pass_to_pass)))
        key = (self._artifact.bug.data, tuple(self._files), *tests, runner.pytest_options)
        recent: dict[object, BlindReference] = runner.cache.memo.setdefault(("recent references",), {})
        with runner.cache.locks.hold(("reference", *key)):
            counted = store.get(*key, "grades") or {}
            grades = int(counted.get("grades", _GRADES_PER_DRAW))
            reference = None
            if grades < _GRADES_PER_DRAW:
                reference = recent.pop(key, None)
                # Another process may have drawn other inputs.
                if reference is None or reference.suite.token != counted.get("draw"):
                    data = store.get(*key)
                    reference = BlindReference.from_json(data) if data is not None else None
            if reference is None:
                buggy = runner.original.apply(self._artifact.bug)
                reference = measure_reference(runner, buggy, self._files, *tests, random.SystemRandom())
                store.put(reference.to_json(), *key)
                grades = 0
            store.put({"grades": grades + 1, "draw": reference.suite.token}, *key, "grades")
            recent[key] = reference
            for oldest in list(recent)[:-_MOST_RECENT]:
                recent.pop(oldest, None)
        return reference
