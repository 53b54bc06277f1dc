"""Attempts at one artifact: each from a fresh tree, graded from a pristine one, kept, and never made twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.agents.loop import closing
from harness.agents.process_reward import ProcessReward, StepScore, judged
from harness.episode import Rollout
from harness.models.identity import hash_of
from harness.models.spending import Budget, Spending, tokens_of
from harness.rewards import solver_reward
from harness.shapes import whole
from harness.solvers.protocol import Solution, Solver, SolverTask
from harness.spent import NAME, Spent, begin_anew
from harness.tasks import open_task
from harness.trajectory import ExitReason, Journal, Trajectory, read_trajectory
from harness.version import code_hash
from pytest_ssr.artifact import BugArtifact
from pytest_ssr.errors import ArtifactError, SsrError, unforeseen
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import Grade, KnownBaseline, grade_patch
from pytest_ssr.patch import Patch
from pytest_ssr.reasons import Reason, ReasonCode, Rule
from pytest_ssr.sandbox.folders import discard, new_folder
from pytest_ssr.stopping import workers
from pytest_ssr.store import Store, key_of
from pytest_ssr.validator import Validation
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import Verdicts

ROLLOUTS = "rollouts"
TRAJECTORY, PATCH, DONE = NAME, "patch.diff", "rollout"


@dataclass(slots=True)
class Solving:
    """Everything that attempts at one artifact share."""

    bench: Workbench
    artifact: BugArtifact
    verdict: Verdict
    solver: Solver
    store: Store
    seed: int = 0
    grade_unsubmitted: bool = False
    """Also grade what a rollout has changed that came to no end of its own."""
    statement: str = ""
    """What is to be done, in words, in the place of the specification."""
    judge: ProcessReward | None = None
    """Scores the steps of each rollout that has a grade; its scores join the reward."""
    rule: Rule = Rule.STRICT
    """Which verdict of a grade gives the reward."""
    full: bool = False
    """Run all tests of each grade, also after one has failed."""
    baseline: KnownBaseline | None = None
    """Gives the baseline of the project, by which tests of other files than the artifact's are run as well."""
    grader: Callable[[Patch], Grade] | None = None
    """Grades what is handed in, in the place of our own rule for artifacts."""
    _task: SolverTask | None = None
    _folder: Path | None = None
    _grades: dict[str, Grade] = field(default_factory=dict)

    def attempts(
        self, count: int, *, jobs: int = 1, progress: Callable[[Rollout], None] = lambda _: None
    ) -> list[Rollout]:
        """Make the attempts that are not there yet, several at a time, and return all of them in order.

        Of one whose grade alone could not be had only the grade is made again. Raises ModelError where a judge fails.
        """
        found: dict[int, Rollout] = {}
        for attempt in range(count):
            known = self.known(attempt)
            if known is not None:
                found[attempt] = known
                progress(known)
        missing = [a for a in range(count) if a not in found]
        try:
            if missing:
                self.task()
                with workers(min(jobs, len(missing))) as pool:
                    for rollout in pool.map(self.attempt, missing):
                        found[rollout.attempt] = rollout
                        progress(rollout)
        finally:
            self.close()
        return [found[a] for a in range(count)]

    def key(self, attempt: int) -> str:
        """Return the name of an attempt: a hash of everything it depends on."""
        return key_of(
            code_hash(),
            self.verdict.artifact_id,
            self.bench.interpreter.environment_hash,
            self.bench.provider.name,
            self.bench.settings.time_limit_s,
            getattr(self.solver, "key", self.solver.name),
            self.seed,
            self.grade_unsubmitted,
            self.statement,
            attempt,
        )

    def known(self, attempt: int) -> Rollout | None:
        """Return an attempt that the store holds, if it has a grade."""
        found = self._record(self.key(attempt))
        return self._judged(found, ask=False) if found is not None and found.verdict is not None else None

    def _record(self, key: str) -> Rollout | None:
        data = self.store.record(f"{ROLLOUTS}/{key}", DONE)
        found = Rollout.from_json(data) if data is not None else None
        return found.by(self.rule) if found is not None else None

    def attempt(self, attempt: int) -> Rollout:
        """Make one attempt, grade it, and have it judged; what another run makes meanwhile is waited for."""
        key = self.key(attempt)
        with self.store.alone(key):
            rollout = self._record(key)
            if rollout is None or rollout.status == "aborted":
                rollout = self._made(attempt, key)
            elif rollout.verdict is None:
                patch = self._handed_in(rollout)
                rollout = self._graded(rollout, patch) if patch is not None else self._made(attempt, key)
            judged = self._judged(rollout, ask=True)
        assert judged is not None
        return judged

    def _made(self, attempt: int, key: str) -> Rollout:
        folder = self.store.root / ROLLOUTS / key
        task, earlier = self.task(), begin_anew(folder)
        seed = int(key_of(self.seed, attempt)[:8], 16) & 0x7FFFFFFF
        trajectory = Trajectory(
            rollout_id=key,
            task_id=self.verdict.artifact_id,
            role="solver",
            attempt=attempt,
            model=self.solver.name,
            provenance={
                "code": code_hash(),
                "sandbox": self.bench.provider.name,
                "environment": self.bench.interpreter.environment_hash,
                "seed": seed,
            },
        )
        begin = time.monotonic()
        journal = Journal(trajectory, folder / TRAJECTORY)
        solution = Solution(None, trajectory)
        with closing(journal):
            solution = self.solver.solve(task, seed=seed, journal=journal)
        seconds = time.monotonic() - begin
        rollout = self._kept(self._ungraded(solution, key, attempt, seed, seconds, earlier))
        patch = self._handed_in(rollout) if rollout.status != "aborted" else None
        return self._graded(rollout, patch) if patch is not None else rollout

    def _kept(self, rollout: Rollout) -> Rollout:
        self.store.put_record(f"{ROLLOUTS}/{rollout.id}", DONE, rollout.to_json())
        return rollout

    def _handed_in(self, rollout: Rollout) -> Patch | None:
        """Return what a rollout has handed in; None where that is nothing, is gone or is not whole."""
        try:
            data = (self.store.root / ROLLOUTS / rollout.id / PATCH).read_bytes()
        except OSError:
            return None
        return Patch.parse(data) if hashlib.sha256(data).hexdigest() == rollout.patch_sha256 else None

    def _graded(self, rollout: Rollout, patch: Patch) -> Rollout:
        """Grade what a rollout has handed in; it is in the store before, so that an interrupt costs the grade alone."""
        begin = time.monotonic()
        grade = self._grade(patch)
        return self._kept(
            replace(
                rollout,
                resolved=grade.resolved,
                tests=grade.tests,
                reward=solver_reward(grade.verdict(self.rule)),
                reason=grade.reason,
                flags=grade.flags,
                grading_s=round(time.monotonic() - begin, 3),
            )
        )

    def _judged(self, rollout: Rollout, *, ask: bool) -> Rollout | None:
        """Return the rollout with the judge's scores in its reward; None where there are none and nobody may ask."""
        judge = self.judge
        if judge is None or rollout.verdict is None:
            return rollout
        told = self._scored(judge, rollout.id, ask=ask)
        if told is None:
            return None
        found, spent = told
        known = [s.score for s in found if s.score is not None]
        return replace(
            rollout,
            reward=judge.combined(solver_reward(rollout.verdict), found),
            score=fmean(known) if known else None,
            tokens=rollout.tokens + spent.tokens,
            cost_usd=rollout.cost_usd + spent.cost_usd,
            unpriced=rollout.unpriced + spent.unpriced,
            estimated=rollout.estimated + spent.estimated,
        )

    def _scored(self, judge: ProcessReward, rollout: str, *, ask: bool) -> tuple[list[StepScore], Spent] | None:
        """Return the scores of a rollout's steps and what they cost; each vote is kept as soon as it is there.

        None where votes are missing and nobody may ask.
        """
        folder, everything = f"{ROLLOUTS}/{rollout}", Spent()
        path, found = self.store.root / folder / TRAJECTORY, []
        trajectory, version = read_trajectory(path), hash_of(path)
        opened = judge.opened(trajectory)
        for step in judged(trajectory):
            name = f"scores-{judge.key}-{step.id:05d}"
            votes, spent = _told(self.store.record(folder, name), version)
            while len(votes) < judge.votes:
                if not ask:
                    return None
                meter = Budget()
                votes.append(replace(opened, model=Spending(opened.model, meter)).vote(trajectory, step, len(votes)))
                spent += Spent(tokens_of(meter.spent), meter.spent_usd, meter.unpriced, meter.estimated)
                self.store.put_record(folder, name, {"trajectory": version, "votes": votes, "spent": asdict(spent)})
            found.append(StepScore.of(step.id, votes))
            everything += spent
        return found, everything

    def task(self) -> SolverTask:
        """Return what the solver is given; its tree is written once, before attempts run side by side."""
        if self._task is None:
            self._folder = new_folder()
            self._task = open_task(self.bench, self.artifact, self._folder, statement=self.statement)
        return self._task

    def close(self) -> None:
        """Let go of the tree and of what the solver keeps for it."""
        release = getattr(self.solver, "release", None)
        if self._task is not None and release is not None:
            release(self._task)
        if self._folder is not None:
            discard(self._folder)
        self._task = self._folder = None

    def _ungraded(
        self, solution: Solution, key: str, attempt: int, seed: int, seconds: float, earlier: Spent
    ) -> Rollout:
        """Return an attempt before its grade; one without a patch is unresolved."""
        done = solution.trajectory
        patch = solution.patch
        lost = patch is None and done.exit_reason is ExitReason.SUBMITTED
        if patch is not None and done.exit_reason is not ExitReason.SUBMITTED and not self.grade_unsubmitted:
            patch = None
        if patch is not None and not patch.data.strip():
            patch = None
        resolved: bool | None = None
        if done.status == "aborted" or lost:
            what = "what was handed in is gone" if lost else f"{done.exit_reason}: {done.detail}"
            reason = Reason(ReasonCode.ATTEMPT_ABORTED, what)
        elif patch is None:
            ended = f"{done.exit_reason}: {done.detail}" if done.detail else str(done.exit_reason)
            resolved, reason = False, Reason(ReasonCode.NO_PATCH, f"the attempt ended by {ended}")
        else:
            reason = Reason(ReasonCode.NOT_GRADED)
            self.store.put_file(f"{ROLLOUTS}/{key}", PATCH, patch.data)
        spent = earlier + Spent.of(done)
        return Rollout(
            id=key,
            attempt=attempt,
            solver=self.solver.name,
            seed=seed,
            resolved=resolved,
            tests=resolved,
            rule=str(self.rule),
            reward=solver_reward(resolved),
            reason=reason,
            exit_reason=str(done.exit_reason),
            status="aborted" if lost else done.status,
            patch_sha256=hashlib.sha256(patch.data).hexdigest() if patch is not None else "",
            steps=len(done.steps),
            tokens=spent.tokens,
            cost_usd=spent.cost_usd,
            unpriced=spent.unpriced,
            estimated=spent.estimated,
            seconds=round(seconds, 3),
        )

    def _own_grade(self, patch: Patch) -> Grade:
        return grade_patch(
            self.bench.scoped(),
            self.artifact,
            patch,
            fail_to_pass=self.verdict.fail_to_pass,
            pass_to_pass=self.verdict.pass_to_pass,
            like_s=self.verdict.original_s or None,
            full=self.full,
            baseline=self.baseline,
        )

    def _grade(self, patch: Patch) -> Grade:
        """Grade a patch; the same patch, handed in again, has the same grade."""
        name = hashlib.sha256(patch.data).hexdigest()
        if name not in self._grades:
            try:
                grade = self.grader(patch) if self.grader is not None else self._own_grade(patch)
            except ArtifactError as error:
                reason = Reason(ReasonCode.PATCH_UNREADABLE, str(error))
                grade = Grade(self.verdict.artifact_id, False, reason, tests=False)
            except SsrError:
                raise
            except Exception as error:
                grade = Grade(self.verdict.artifact_id, None, Reason(ReasonCode.INTERNAL_ERROR, unforeseen(error)))
            if grade.resolved is None:
                return grade
            self._grades[name] = grade
        return self._grades[name]


def _told(data: Mapping[str, Any] | None, version: str) -> tuple[list[float | None], Spent]:
    """Return the votes on a step that were kept, and what they cost; none of those where something is not whole.

    Those on an earlier trajectory are no votes on this one, and were paid for.
    """
    try:
        told = data or {}
        spent, votes = whole(Spent(**told["spent"])), told["votes"]
    except (KeyError, TypeError):
        return [], Spent()
    are_votes = isinstance(votes, list) and all(v is None or (type(v) in (int, float) and -1 <= v <= 1) for v in votes)
    return (votes if are_votes and told.get("trajectory") == version else []), spent


def proven(
    artifact: BugArtifact, bench: Workbench, store: Store, *, begin: Callable[[], None] = lambda: None
) -> Verdict:
    """Return our own verdict on an artifact, made now unless the store holds it.

    One of another environment, by another rule or of another version of ours is none.
    begin: is called before it is made. Raises ArtifactError when the artifact is not valid.
    """
    kept = Verdicts(store, bench)
    verdict = kept.get(artifact.content_id(bench.snapshot.tree_hash))
    if verdict is None or not verdict.valid:
        begin()
        verdict = Validation(artifact, bench.scoped()).verdict()
        if not verdict.valid:
            failed = verdict.rejection
            why = f"{failed.name}: {failed.reason}" if failed else verdict.fault
            raise ArtifactError(f"the artifact is not valid, nothing to solve: {why}")
        kept.put(verdict)
    return verdict


def rates(rollouts: Sequence[Rollout]) -> tuple[int, int]:
    """Return how many are resolved, and how many have a grade."""
    grades = [r.verdict for r in rollouts if r.verdict is not None]
    return sum(grades), len(grades)
