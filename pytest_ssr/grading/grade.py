"""A predicted patch in, a grade out, judged on a tree made from the pristine snapshot.

Order (arXiv 2512.18552, section 2.4): original, bug, weakening, predicted patch, then the oracle tests and all of the
test surface as they were in the original; then the artifact's script and parser, and pytest itself, by exact ids.
What passes so far is asked again with twins of the tests planted among them, and, where the patch is suspicious, in
parts and in another order. A patch that only pretends fails there.
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
from pytest_ssr.grading.canaries import Canaries
from pytest_ssr.grading.shadows import shadowing
from pytest_ssr.grading.suspicion import suspicions
from pytest_ssr.grading.values import Values
from pytest_ssr.outcomes import Outcome, RunStatus, SuiteRun, some
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.cgroup import kills_for_memory
from pytest_ssr.sandbox.folders import require_room
from pytest_ssr.sandbox.protocol import Limit
from pytest_ssr.surface import is_test_surface, old_copies

_TRIES = 2
_LONG_S, _QUICK = 1.0, 0.02
_DRAWN_FOR = 8
"""Grades of one artifact that have the same inputs: others cost three runs, half as many as a grade."""


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
    """What is notable about the patch: test files that it changed and that were restored, suspicious lines."""
    forged: bool = False
    """The outcomes cannot be true: the patch reaches into the test run."""

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
        flags += grading.suspicions(state)
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

    def suspicions(self, state: CodebaseState) -> tuple[str, ...]:
        """Return what is suspicious about the way from the weakened state to this one."""
        texts = [e.data for p in self._files if (e := self._bench.original.entry(p)) is not None]
        original = self._bench.original
        return suspicions(original, original.apply(self._artifact.bug), state, texts)

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
        forged, flags = False, tuple(flags)
        if not reason and not trusted:
            reason = self._unlike_the_original(evidence)
            flags += self._too_quick(evidence)
            if not reason:
                reason, forged, more = self._doubt(state, suspicious=any(f.startswith("suspicious") for f in flags))
                flags += more
        wanted = f"all {len(self._fail_to_pass)} FAIL_TO_PASS and {len(self._pass_to_pass)} PASS_TO_PASS tests pass"
        return Grade(
            self.name,
            not reason,
            reason or wanted,
            {i: statuses[i] for i in sorted(self._fail_to_pass)},
            {i: statuses[i] for i in sorted(self._pass_to_pass)},
            flags,
            forged,
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

    def _too_quick(self, evidence: SuiteRun) -> tuple[str, ...]:
        reference, _ = self._bench.suite(self._bench.original, self._files, like_s=self._like_s, fresh=True)
        spent, usual = (sum(r.duration_s for r in run.results.values()) for run in (evidence, reference))
        if usual > _LONG_S and spent < _QUICK * usual:
            return (f"suspicious: the tests took {spent:.2f} s; on the original {usual:.1f} s",)
        return ()

    def _doubt(self, state: CodebaseState, *, suspicious: bool) -> tuple[str, bool, tuple[str, ...]]:
        """Return why a run in which all passed is not believed, whether that is a forgery, and further flags."""
        chance = random.SystemRandom()
        tests = self._fail_to_pass | self._pass_to_pass
        sets = (self._files, self._fail_to_pass, self._pass_to_pass)
        values = self._values(chance, every=suspicious)
        canaries = Canaries(self._bench, *sets, chance, like_s=self._like_s, every=suspicious, many=values.unread)
        opinion = canaries.opinion(state, tests)
        if opinion.forged or opinion.failed:
            why = f"forged: {opinion.forged}" if opinion.forged else opinion.failed
            return why, bool(opinion.forged), ()
        answer = values.answer(self._bench, state)
        if answer.forged or answer.unrepaired:
            why = f"forged: {answer.forged}" if answer.forged else f"not repaired: {answer.unrepaired}"
            return why, bool(answer.forged), ()
        if opinion.doubts:
            return next(iter(opinion.doubts.values())), False, ()
        flags = []
        if opinion.unasked:
            flags.append(f"less certain: not asked under another name: {some(opinion.unasked)}")
        if opinion.left_out:
            flags.append(f"less certain: no time to ask under another name: {some(opinion.left_out)}")
        if opinion.apart:
            flags.append(f"less certain: passes only apart from itself under another name: {some(opinion.apart)}")
        if opinion.endless:
            flags.append(f"less certain: with another value it did not end on the original: {some(opinion.endless)}")
        if answer.untold:
            flags.append(f"less certain: no value that shows the bug can be compared in: {some(answer.untold)}")
        if answer.left_out:
            flags.append(f"less certain: no time to compare the values in: {some(answer.left_out)}")
        if answer.untried:
            flags.append(f"less certain: no other input shows the bug in: {some(answer.untried)}")
        if answer.differing:
            flags.append(f"less certain: with another input a value is not the original's in: {some(answer.differing)}")
        doubted = suspicious or flags or not opinion.certain
        apart, skipped = self._in_parts(state, chance) if doubted else ("", [])
        if skipped:
            flags.append(f"less certain: not asked apart, as they do not pass there on the original: {some(skipped)}")
        return apart, False, tuple(flags)

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

    def _in_parts(self, state: CodebaseState, chance: random.Random) -> tuple[str, list[str]]:
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
                return f"in a second opinion, run apart and in another order: {run.fault or some(lost)}", skipped
        return "", skipped

    def _parts(self) -> list[list[str]]:
        if len(self._files) > 1:
            return [[p] for p in self._files]
        functions = sorted({i.partition("[")[0] for i in self._fail_to_pass | self._pass_to_pass})
        middle = len(functions) // 2
        return [p for p in (functions[:middle], functions[middle:]) if p] if len(functions) < 500 else [self._files]
