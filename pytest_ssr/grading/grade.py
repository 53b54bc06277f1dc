"""A predicted patch in, a grade out, judged on a tree made from the pristine snapshot.

Order (arXiv 2512.18552, section 2.4): original, bug, weakening, predicted patch, then the oracle tests and all of the
test surface as they were in the original; then the artifact's script and parser, and pytest itself, by exact ids.
What passes so far is run once more, blind: with tests that hold nothing of what they expect, and with other inputs.
What they compute is compared on the host. A patch that only pretends fails there.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.root import root_of
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.bases import rewritten
from pytest_ssr.grading.blind.run import BlindResult, BlindTests
from pytest_ssr.grading.shadows import shadowing
from pytest_ssr.outcomes import Outcome, RunStatus, SuiteRun, some
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.cgroup import kills_for_memory
from pytest_ssr.sandbox.folders import require_room
from pytest_ssr.sandbox.protocol import Limit
from pytest_ssr.surface import is_test_surface, old_copies

_TRIES = 2
_DRAWN_FOR = 8
"""Grades of one artifact that have the same inputs: others cost four runs."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What a predicted patch achieved."""

    id: str
    """The artifact's content id."""
    resolved: bool | None
    """None: no grade, because the infrastructure failed."""
    reason: str
    """One sentence."""
    fail_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Id to passed, failed or missing."""
    pass_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Likewise, for tests that must stay passing."""
    flags: tuple[str, ...] = ()
    """What is notable about the patch: test files that it changed and that were restored."""
    forged: bool = False
    """The outcomes cannot be true: what passes does not compute what the tests ask for."""
    unspecified: tuple[str, ...] = ()
    """Tests that with another input compute neither what the original nor what the buggy code does."""
    unchecked: tuple[str, ...] = ()
    """Tests that cannot be asked without what they expect: their outcomes are believed."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def repaired_state(bench: Workbench, artifact: BugArtifact, patch: Patch) -> tuple[CodebaseState, tuple[str, ...]]:
    """Return the state to grade and the paths of the patch that were dropped because they belong to the tests.

    Raises ArtifactError when the rest of the patch does not apply to the weakened state.
    """
    oracle = set(artifact.test_files)
    changed = {p for each in (patch, artifact.bug, artifact.weaken) for p in each.paths}
    surface = oracle | {p for p in changed if is_test_surface(p)}
    surface |= shadowing(bench.original, changed, artifact.test_files)
    dropped = tuple(p for p in patch.paths if p in surface)
    kept = patch.select([p for p in patch.paths if p not in dropped])
    state = bench.original.apply(artifact.bug).apply(artifact.weaken).apply(kept)
    state = state.restore({p for p in state.changes if p in surface})
    shown = {str(folder) for place in bench.interpreter.readable for folder in (place, *place.parents)}
    if over := [p for p in kept.paths if str(bench.snapshot.origin / p) in shown]:
        raise ArtifactError(f"{some(over)} cannot be written: the interpreter's folder is there")
    # Solvers are not given these, and a patch may not read in them how its code was.
    return state.replace(dict.fromkeys(old_copies(bench.snapshot.files))), dropped


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
) -> Grade:
    """Grade one patch by the recorded ids; an id that did not run counts as not passed.

    like_s: seconds the oracle tests take on the original. trusted: the patch is our own, nothing is planted.
    refuse_tests: a patch that touches the test surface is unresolved, instead of graded without that part.
    A sandbox that breaks twice is no grade, and nothing is raised for it.
    """
    if not fail_to_pass:
        raise ArtifactError("the artifact records no FAIL_TO_PASS test; validate it first")
    grading = _Grading(bench, artifact, frozenset(fail_to_pass), frozenset(pass_to_pass), like_s)
    try:
        state, dropped = repaired_state(bench, artifact, patch)
    except ArtifactError as error:
        return Grade(grading.name, False, f"the patch does not apply: {error}")
    flags = tuple(f"changed and restored: {p}" for p in dropped)
    if dropped and refuse_tests:
        return Grade(grading.name, False, f"refused: the patch changes tests: {some(dropped)}", flags=flags)
    if not trusted:
        if changed := grading.rewritten(state):
            return Grade(grading.name, False, f"the patch changes tests in the code: {some(changed)}", flags=flags)
    fault = ""
    for _ in range(_TRIES):
        killed = kills_for_memory()
        try:
            grade = grading.grade(state, flags, trusted=trusted)
            if not grade.resolved:
                _require_a_sound_machine(grade.reason, killed)
            return grade
        except SandboxError as error:
            fault = str(error)
    return Grade(grading.name, None, f"no grade: the sandbox failed: {fault}", flags=flags)


def _reason_of(blind: BlindResult) -> str:
    if blind.wrong:
        return f"forged: not what the tests ask for is computed in {some(blind.wrong)}"
    return f"not repaired: with other inputs {some(blind.not_repaired)}" if blind.not_repaired else ""


def _require_a_sound_machine(reason: str, killed: int) -> None:
    """Raise SandboxError where honest tests may have failed for want of room or memory that is not theirs to answer."""
    require_room()
    if kills_for_memory() > killed and (str(Limit.MACHINE_MEMORY) in reason or str(Limit.MEMORY) not in reason):
        raise SandboxError("the kernel has killed a process of this machine for want of memory")


class _Grading:
    """What one grade needs: the artifact, its tests, and the runs on the original to compare with."""

    def __init__(
        self,
        bench: Workbench,
        artifact: BugArtifact,
        fail_to_pass: frozenset[str],
        pass_to_pass: frozenset[str],
        like_s: float | None,
    ) -> None:
        self._bench, self._artifact, self._like_s = bench, artifact, like_s
        bench.root = root_of(artifact.script)
        self._fail_to_pass, self._pass_to_pass = fail_to_pass, pass_to_pass
        self._files = [p for p in artifact.test_files if p.endswith(".py") and not p.endswith("conftest.py")]
        self.name = artifact.content_id(bench.snapshot.tree_hash)

    def rewritten(self, state: CodebaseState) -> list[str]:
        """Return the tests that a state has otherwise than the original, in files that are no test surface."""
        original = self._bench.original
        return rewritten(original, original.apply(self._artifact.bug), state, self._fail_to_pass | self._pass_to_pass)

    def grade(self, state: CodebaseState, flags: Sequence[str], *, trusted: bool) -> Grade:
        """Make the runs; raises SandboxError."""
        # Our own channel first: what fails there needs no run that can only agree.
        evidence, _ = self._bench.suite(state, self._files, like_s=self._like_s, fresh=not trusted)
        statuses, reason = self._statuses(evidence.passing, evidence.results.keys()), evidence.fault
        if not reason and set(statuses.values()) == {"passed"}:
            run, _ = self._bench.script(state, self._artifact, like_s=self._like_s)
            statuses = self._statuses(evidence.passing & run.passing, run.statuses.keys())
            reason = run.fault or run.contradiction
        missed = [i for i, s in statuses.items() if s != "passed"]
        if missed and not reason:
            reason = f"{len(missed)} of {len(statuses)} tests do not pass: {some(missed)}"
        blind = BlindResult()
        if not reason and not trusted:
            reason = self._unlike_the_original(evidence)
            if not reason:
                blind = self._blind(state)
                reason = _reason_of(blind)
        wanted = f"all {len(self._fail_to_pass)} FAIL_TO_PASS and {len(self._pass_to_pass)} PASS_TO_PASS tests pass"
        return Grade(
            self.name,
            not reason,
            reason or wanted,
            {i: statuses[i] for i in sorted(self._fail_to_pass)},
            {i: statuses[i] for i in sorted(self._pass_to_pass)},
            tuple(flags),
            bool(blind.wrong),
            blind.unspecified,
            blind.unchecked,
        )

    def _statuses(self, passing: Collection[str], ran: Collection[str]) -> dict[str, str]:
        return {
            i: "passed" if i in passing else "failed" if i in ran else "missing"
            for i in (*self._fail_to_pass, *self._pass_to_pass)
        }

    def _unlike_the_original(self, evidence: SuiteRun) -> str:
        """Compare what ran with what runs on the original: ids, and the exit status with the outcomes."""
        reference, _ = self._bench.suite(self._bench.original, self._files, like_s=self._like_s, fresh=True)
        usual, found = set(reference.collected), set(evidence.collected)
        gone, new = usual - found, found - usual
        if gone or new or len(reference.collected) != len(evidence.collected):
            which = f"vanished: {some(gone)}" if gone else f"appeared: {some(new)}" if new else "appear twice"
            return f"not the tests of the original were collected; {which}"
        failed = sum(r.outcome in (Outcome.FAILED, Outcome.ERROR) for r in evidence.results.values())
        if evidence.status is RunStatus.COMPLETED and bool(failed) != (evidence.exit_code == 1):
            return f"the exit status {evidence.exit_code} and {failed} reported failures cannot both be true"
        return ""

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
