"""A predicted patch in, a grade out, judged on a tree made from the pristine snapshot.

Order (arXiv 2512.18552, section 2.4): original, bug, weakening, predicted patch, then the oracle tests and all of the
test surface as they were in the original; then the artifact's script and parser, and pytest itself, by exact ids.
What passes so far is asked again with twins of the tests planted among them, and, where the patch is suspicious, in
parts and in another order. A patch that only pretends fails there.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.root import root_of
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.bases import rewritten
from pytest_ssr.grading.canaries import Canaries
from pytest_ssr.grading.evidence import Evidence, RecordedTests, contradiction, evidence_of, fault_of, other_tests
from pytest_ssr.grading.repaired import compiled_code, repaired_state
from pytest_ssr.grading.result import Grade
from pytest_ssr.grading.suspicion import suspicions
from pytest_ssr.grading.values import Values
from pytest_ssr.outcomes import SuiteRun, some
from pytest_ssr.patch import Patch
from pytest_ssr.reasons import Flag, FlagCode, Reason, ReasonCode, has_flag
from pytest_ssr.sandbox.cgroup import kills_for_memory
from pytest_ssr.sandbox.folders import require_room

LEAST_S = 5.0
"""Seconds that tests count as taking at least on the original: the limit that follows leaves room on a busy machine."""
_TRIES = 2
_LONG_S, _QUICK = 1.0, 0.02
_DRAWN_FOR = 8
"""Grades of one artifact that have the same inputs: others cost three runs, half as many as a grade."""


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
) -> Grade:
    """Grade one patch by the recorded ids; an id that did not run counts as not passed.

    like_s: seconds the oracle tests take on the original, from which the time limit of each run follows. trusted: the
    patch is our own, nothing is planted. refuse_tests: a patch that touches the test surface is unresolved, instead of
    graded without that part. full: run all tests, in the order of collection; otherwise FAIL_TO_PASS tests run first,
    and the run ends at the first recorded test that fails. A sandbox that breaks twice is no grade, and nothing is
    raised for it.
    """
    if not fail_to_pass:
        raise ArtifactError("the artifact records no FAIL_TO_PASS test; validate it first")
    if like_s is not None and not trusted:
        like_s = max(like_s, LEAST_S)
    recorded = _recorded(artifact, fail_to_pass, pass_to_pass)
    grading = _Grading(bench, recorded, like_s, full=full, trusted=trusted)
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
        if found := grading.suspicions(state):
            flags += (Flag(FlagCode.SUSPICIOUS_CODE, found),)
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
    flags: tuple[Flag, ...] = ()
    unchecked: tuple[str, ...] = ()
    unspecified: tuple[str, ...] = ()


class _Grading:
    """What one grade needs: the artifact, its tests, and the runs on the original to compare with."""

    def __init__(
        self, bench: Workbench, tests: RecordedTests, like_s: float | None, *, full: bool, trusted: bool
    ) -> None:
        self._bench, self._tests, self._like_s = bench, tests, like_s
        self._full, self._trusted = full, trusted
        bench.root = root_of(tests.artifact.script)
        self._artifact, self._files = tests.artifact, list(tests.files)
        self._fail_to_pass, self._pass_to_pass = tests.fail_to_pass, tests.pass_to_pass
        self.name = tests.artifact.content_id(bench.snapshot.tree_hash)

    def refused(self, code: ReasonCode, detail: str, flags: tuple[Flag, ...] = ()) -> Grade:
        """Return the grade of a patch for which no test is run."""
        return Grade(self.name, False, Reason(code, detail), tests=False, flags=flags)

    def suspicions(self, state: CodebaseState) -> tuple[str, ...]:
        """Return what is suspicious about the way from the weakened state to this one."""
        texts = [e.data for p in self._files if (e := self._bench.original.entry(p)) is not None]
        original = self._bench.original
        found = suspicions(original, original.apply(self._artifact.bug), state, texts)
        return tuple(line.removeprefix("suspicious: ") for line in found)

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
            opinion = self._opinion(state, evidence, suspicious=has_flag(flags, FlagCode.SUSPICIOUS_CODE))
        total = f"{len(self._fail_to_pass)} FAIL_TO_PASS, {len(self._pass_to_pass)} PASS_TO_PASS"
        return Grade(
            self.name,
            opinion.failure is None,
            opinion.failure or Reason(ReasonCode.RESOLVED, total),
            tests=evidence.failure is None,
            fail_to_pass={i: str(evidence.statuses[i]) for i in sorted(self._fail_to_pass)},
            pass_to_pass={i: str(evidence.statuses[i]) for i in sorted(self._pass_to_pass)},
            flags=flags + opinion.flags,
            unchecked=opinion.unchecked,
            unspecified=opinion.unspecified,
        )

    def _opinion(self, state: CodebaseState, evidence: Evidence, *, suspicious: bool) -> _Opinion:
        """Return whether a run in which all recorded tests pass is believed."""
        reference = self._reference()
        failure = other_tests(evidence.run, reference) or contradiction(evidence.run)
        flags = self._too_quick(evidence.run, reference)
        if failure is not None:
            return _Opinion(failure, flags)
        opinion = self._doubt(state, suspicious=suspicious)
        return replace(opinion, flags=flags + opinion.flags)

    def _reference(self) -> SuiteRun:
        run, _ = self._bench.suite(self._bench.original, self._files, like_s=self._like_s, fresh=True)
        return run

    @staticmethod
    def _too_quick(run: SuiteRun, reference: SuiteRun) -> tuple[Flag, ...]:
        spent, usual = (sum(r.duration_s for r in each.results.values()) for each in (run, reference))
        if usual > _LONG_S and spent < _QUICK * usual:
            return (Flag(FlagCode.TOO_QUICK, (f"{spent:.2f} s, on the original {usual:.1f} s",)),)
        return ()

    def _doubt(self, state: CodebaseState, *, suspicious: bool) -> _Opinion:
        """Ask with twins of the tests, with values for other inputs and, if there is doubt, in parts."""
        chance = random.SystemRandom()
        tests = self._fail_to_pass | self._pass_to_pass
        sets = (self._files, self._fail_to_pass, self._pass_to_pass)
        values = self._values(chance, every=suspicious)
        canaries = Canaries(self._bench, *sets, chance, like_s=self._like_s, every=suspicious, many=values.unread)
        twins = canaries.opinion(state, tests)
        if twins.forged:
            return _Opinion(Reason(ReasonCode.FORGED, twins.forged))
        if twins.failed:
            return _Opinion(Reason(ReasonCode.TWINS_FAIL, twins.failed))
        answer = values.answer(self._bench, state)
        if answer.forged:
            return _Opinion(Reason(ReasonCode.FORGED, answer.forged))
        if answer.unrepaired:
            return _Opinion(Reason(ReasonCode.NOT_REPAIRED, answer.unrepaired))
        if twins.doubts:
            return _Opinion(Reason(ReasonCode.TWINS_FAIL, next(iter(twins.doubts.values()))))
        unasked = {*twins.unasked, *twins.left_out, *twins.endless, *answer.untold, *answer.left_out, *answer.untried}
        found = {
            FlagCode.PASSES_APART: twins.apart,
            FlagCode.UNCHECKED: tuple(sorted(unasked)),
            FlagCode.UNSPECIFIED: tuple(sorted(answer.differing)),
        }
        failure = None
        if suspicious or any(found.values()) or not twins.certain:
            failure, skipped = self._in_parts(state, chance)
            found[FlagCode.NOT_RUN_APART] = tuple(skipped)
        flags = tuple(Flag(code, names) for code, names in found.items() if names)
        return _Opinion(failure, flags, found[FlagCode.UNCHECKED], found[FlagCode.UNSPECIFIED])

    def _values(self, chance: random.Random, *, every: bool) -> Values:
        """Return the values to compare, with inputs that few grades had before."""
        tests = (self._fail_to_pass, self._pass_to_pass)
        key = ("values", self._artifact.bug.data, tuple(self._files), *tests, self._bench.root, every)
        found, grades = self._bench.memo.get(key, (None, _DRAWN_FOR))
        if grades >= _DRAWN_FOR:
            buggy = self._bench.original.apply(self._artifact.bug)
            found, grades = Values(self._bench, buggy, self._files, *tests, chance, every=every), 0
        self._bench.memo[key] = found, grades + 1
        values: Values = found
        return values

    def _in_parts(self, state: CodebaseState, chance: random.Random) -> tuple[Reason | None, list[str]]:
        """Run the tests in several processes, each in another order; return which do not pass there, and what of
        them tells nothing, as it does not pass there on the original either.
        """
        tests = self._fail_to_pass | self._pass_to_pass
        skipped: list[str] = []
        hash_seed, order_seed = chance.randint(3, 1000), chance.randint(2, 1000)
        for part in self._parts():
            seeds = {"hash_seed": hash_seed, "order_seed": order_seed, "like_s": self._like_s, "fresh": True}
            usual, _ = self._bench.suite(self._bench.original, part, **seeds)  # type: ignore[arg-type]
            if usual.fault:
                skipped += part
                continue
            run, _ = self._bench.suite(state, part, **seeds)  # type: ignore[arg-type]
            lost = (usual.passing & tests) - run.passing
            skipped += sorted(tests.intersection(usual.collected) - usual.passing)
            if run.fault or lost:
                return fault_of(run) or Reason(ReasonCode.TESTS_FAIL_APART, some(lost)), skipped
        return None, skipped

    def _parts(self) -> list[list[str]]:
        if len(self._files) > 1:
            return [[p] for p in self._files]
        functions = sorted({i.partition("[")[0] for i in self._fail_to_pass | self._pass_to_pass})
        middle = len(functions) // 2
        return [p for p in (functions[:middle], functions[middle:]) if p] if len(functions) < 500 else [self._files]
