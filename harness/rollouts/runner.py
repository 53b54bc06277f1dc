"""Run attempts at one artifact: each on a fresh tree, graded on a pristine one, stored, and never repeated."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.agents.loop import record_end
from harness.agents.process_reward import ProcessReward, StepScore, scored_steps
from harness.executors.local import LocalExecutor
from harness.executors.protocol import result_of
from harness.models.budget import Budget, BudgetedModel, total_tokens
from harness.models.protocol import hash_path, label_of
from harness.records.attempt import Attempt
from harness.records.rewards import solver_reward
from harness.records.trajectory import Journal, Trajectory, read_trajectory
from harness.records.usage import NAME, RunUsage, archive_interrupted
from harness.rollouts.grades import Grades
from harness.rollouts.submission import submission_of
from harness.rollouts.task import open_task
from harness.solvers.protocol import Solution, Solver, SolverTask
from harness.storage.code_version import code_hash
from pytest_ssr.campaign.parallel import Units
from pytest_ssr.checks import NamedCheck, names_of
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError, SsrError, StoreError, describe_unexpected
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading import BaselineSource, Grade, grade_patch
from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.sandbox.filesystem.workdirs import discard, new_folder
from pytest_ssr.storage.store import Store, key_of
from pytest_ssr.storage.verdict_store import Verdicts

ROLLOUTS = "rollouts"
TRAJECTORY, PATCH, DONE = NAME, "patch.diff", "rollout"


@dataclass(slots=True)
class RolloutRunner:
    """Runs attempts at one artifact; holds what they share."""

    runner: Runner
    artifact: BugArtifact
    verdict: Verdict
    solver: Solver
    store: Store
    seed: int = 0
    grade_unsubmitted: bool = False
    """Also grade the changes of a rollout that ended without a submission."""
    statement: str = ""
    """The problem statement, which replaces the specification."""
    judge: ProcessReward | None = None
    """Scores the steps of each rollout that has a grade; its scores are part of the reward."""
    rule: Rule = Rule.STRICT
    """The verdict of a grade that decides the reward."""
    full: bool = False
    """Run all tests of each grade, even after a failure."""
    baseline: BaselineSource | None = None
    """Returns the project's baseline, so that grading also runs tests of files outside the artifact."""
    grader: Callable[[Patch], Grade] | None = None
    """Grades submissions instead of this package's rule for artifacts."""
    read_patch: Callable[[bytes], Patch] = Patch.parse
    """Reads a submission that was stored before its grade."""
    _task: SolverTask | None = None
    _folder: Path | None = None
    _opening: threading.Lock = field(default_factory=threading.Lock)
    grades: Grades = field(default_factory=Grades)
    """Of patches that were graded before, perhaps by other runners of the same tasks, settings and rule."""

    def attempts(
        self,
        count: int,
        *,
        units: AbstractContextManager[Units[int, Attempt]] | None = None,
        progress: Callable[[Attempt], None] = lambda _: None,
    ) -> list[Attempt]:
        """Run the attempts that the store does not have, and return all of them in order.

        An attempt that only lacks its grade is only graded again. units: runs the attempts; None to run one after the
        other. Raises ModelError if a judge fails.
        """
        rollouts: dict[int, Attempt] = {}
        for attempt in range(count):
            stored = self.stored_attempt(attempt)
            if stored is not None:
                rollouts[attempt] = stored
                progress(stored)
        missing = [a for a in range(count) if a not in rollouts]
        try:
            if missing:
                with units or LocalExecutor().units(self) as started:
                    for future in [started.submit(a) for a in missing]:
                        rollout = result_of(future)
                        rollouts[rollout.attempt] = rollout
                        progress(rollout)
        finally:
            self.close()
        return [rollouts[a] for a in range(count)]

    def key(self, attempt: int) -> str:
        """Return the id of an attempt: a hash of everything it depends on."""
        return key_of(
            code_hash(),
            self.verdict.artifact_id,
            self.runner.interpreter.environment_hash,
            self.runner.provider.name,
            self.runner.settings.time_limit_s,
            getattr(self.solver, "key", self.solver.name),
            self.seed,
            self.grade_unsubmitted,
            self.statement,
            attempt,
            *(["by-script"] if self.runner.settings.by_script else []),
        )

    def stored_attempt(self, attempt: int) -> Attempt | None:
        """Return an attempt from the store if it has a grade, else None."""
        rollout = self._record(self.key(attempt))
        return (
            self._with_scores(rollout, may_query=False) if rollout is not None and rollout.verdict is not None else None
        )

    def _record(self, key: str) -> Attempt | None:
        data = self.store.record(f"{ROLLOUTS}/{key}", DONE)
        rollout = Attempt.from_json(data) if data is not None else None
        return rollout.by(self.rule) if rollout is not None else None

    def run(self, attempt: int) -> Attempt:
        """Run one attempt, grade it, and score it with the judge; waits if another process is running it."""
        key = self.key(attempt)
        with self.store.alone(key):
            rollout = self._record(key)
            if rollout is None or rollout.ending == "aborted":
                rollout = self._run(attempt, key)
            elif rollout.verdict is None:
                patch = self._submitted_patch(rollout)
                rollout = self._graded(rollout, patch) if patch is not None else self._run(attempt, key)
            scored = self._with_scores(rollout, may_query=True)
        assert scored is not None
        return scored

    def _run(self, attempt: int, key: str) -> Attempt:
        folder = self.store.root / ROLLOUTS / key
        if not folder.exists():
            self.store.fetch(f"{ROLLOUTS}/{key}")
        task, earlier = self.task(), archive_interrupted(folder)
        seed = int(key_of(self.seed, attempt)[:8], 16) & 0x7FFFFFFF
        trajectory = Trajectory(
            rollout_id=key,
            task_id=self.verdict.artifact_id,
            role="solver",
            attempt=attempt,
            model=self.solver.name,
            provenance={
                "code": code_hash(),
                "sandbox": self.runner.provider.name,
                "environment": self.runner.interpreter.environment_hash,
                "seed": seed,
            },
        )
        begin = time.monotonic()
        journal = Journal(trajectory, folder / TRAJECTORY)
        solution = Solution(None, trajectory)
        with record_end(journal):
            solution = self.solver.solve(task, seed=seed, journal=journal)
        seconds = time.monotonic() - begin
        self.store.keep(f"{ROLLOUTS}/{key}")
        rollout = self._save(self._ungraded(solution, key, attempt, seed, seconds, earlier))
        patch = self._submitted_patch(rollout) if rollout.ending != "aborted" else None
        return self._graded(rollout, patch) if patch is not None else rollout

    def _save(self, rollout: Attempt) -> Attempt:
        self.store.put_record(f"{ROLLOUTS}/{rollout.id}", DONE, rollout.to_json())
        return rollout

    def _submitted_patch(self, rollout: Attempt) -> Patch | None:
        """Return the submitted patch of a rollout, or None without one or if its file is missing or incomplete."""
        data = self.store.file(f"{ROLLOUTS}/{rollout.id}", PATCH)
        if data is None or hashlib.sha256(data).hexdigest() != rollout.patch_sha256:
            return None
        return self.read_patch(data)

    def _graded(self, rollout: Attempt, patch: Patch) -> Attempt:
        """Grade the patch of a rollout that is already stored, so that an interrupt loses only the grade."""
        begin = time.monotonic()
        grade = self.grade(patch)
        return self._save(
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

    def _with_scores(self, rollout: Attempt, *, may_query: bool) -> Attempt | None:
        """Return the rollout with the judge's scores in its reward; None if some are missing and not to be queried.

        Its record gets the reward and the score; what the judge has cost is stored with the votes.
        """
        judge, outcome = self.judge, solver_reward(rollout.verdict)
        if rollout.verdict is None:
            return rollout
        if judge is None:
            # An earlier run may have had one.
            return replace(rollout, reward=outcome, score=None)
        scored = self._scores(judge, rollout.id, may_query=may_query)
        if scored is None:
            return None
        step_scores, spent = scored
        values = [s.score for s in step_scores if s.score is not None]
        judged = replace(rollout, reward=judge.combined(outcome, step_scores), score=fmean(values) if values else None)
        if judged != rollout:
            self._save(judged)
        return replace(
            judged,
            tokens=rollout.tokens + spent.tokens,
            cost_usd=rollout.cost_usd + spent.cost_usd,
            unpriced=rollout.unpriced + spent.unpriced,
            estimated=rollout.estimated + spent.estimated,
        )

    def _scores(
        self, judge: ProcessReward, rollout: str, *, may_query: bool
    ) -> tuple[list[StepScore], RunUsage] | None:
        """Return the scores of a rollout's steps and their cost; each vote is stored as soon as it arrives.

        Returns None if votes are missing and `may_query` is false.
        """
        folder, total = f"{ROLLOUTS}/{rollout}", RunUsage()
        path, scores = self.store.root / folder / TRAJECTORY, []
        self.store.fetch(folder)
        trajectory, version = read_trajectory(path), hash_path(path)
        opened = judge.opened(trajectory)
        for step in scored_steps(trajectory):
            name = f"scores-{judge.key}-{step.id:05d}"
            votes, spent = _stored_votes(self.store.record(folder, name), version)
            while len(votes) < judge.votes:
                if not may_query:
                    return None
                meter = Budget()
                votes.append(
                    replace(opened, model=BudgetedModel(opened.model, meter)).vote(trajectory, step, len(votes))
                )
                spent += RunUsage(total_tokens(meter.spent), meter.spent_usd, meter.unpriced, meter.estimated)
                self.store.put_record(folder, name, {"trajectory": version, "votes": votes, "spent": asdict(spent)})
            scores.append(StepScore.of(step.id, votes))
            total += spent
        return scores, total

    def task(self) -> SolverTask:
        """Return the solver's task; its tree is written once, by the first attempt."""
        with self._opening:
            if self._task is None:
                self._folder = new_folder()
                reads_machine = getattr(self.solver, "reads_machine", True)
                self._task = open_task(
                    self.runner, self.artifact, self._folder, statement=self.statement, reads_machine=reads_machine
                )
            return self._task

    def close(self) -> None:
        """Remove the tree, and release what the solver keeps for it."""
        release = getattr(self.solver, "release", None)
        if self._task is not None and release is not None:
            release(self._task)
        if self._folder is not None:
            discard(self._folder)
        self._task = self._folder = None

    def _ungraded(
        self, solution: Solution, key: str, attempt: int, seed: int, seconds: float, earlier: RunUsage
    ) -> Attempt:
        """Return the rollout of an attempt without its grade; without a patch it is unresolved."""
        done = solution.trajectory
        submission = submission_of(solution, grade_unsubmitted=self.grade_unsubmitted)
        patch = submission.patch
        if patch is not None and submission.status != "aborted":
            self.store.put_file(f"{ROLLOUTS}/{key}", PATCH, patch.data)
        spent = earlier + RunUsage.of(done)
        return Attempt(
            task=self.verdict.artifact_id,
            id=key,
            attempt=attempt,
            solver=label_of(self.solver),
            seed=seed,
            resolved=submission.resolved,
            tests=submission.resolved,
            rule=str(self.rule),
            reward=solver_reward(submission.resolved),
            reason=submission.reason,
            exit_reason=str(done.exit_reason),
            ending=submission.status,
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
            self.runner.scoped(),
            self.artifact,
            patch,
            fail_to_pass=self.verdict.fail_to_pass,
            pass_to_pass=self.verdict.pass_to_pass,
            like_s=self.verdict.original_s or None,
            surface=self.verdict.surface,
            full=self.full,
            baseline=self.baseline,
        )

    def grade(self, patch: Patch) -> Grade:
        """Grade a patch; equal patches share one grade."""
        verdict, environment = self.verdict, self.runner.interpreter.environment_hash
        content = hashlib.sha256(patch.data).hexdigest()
        key = key_of(content, environment, sorted(verdict.fail_to_pass), sorted(verdict.pass_to_pass))
        return self.grades.of((verdict.artifact_id, key), lambda: self._new_grade(patch))

    def _new_grade(self, patch: Patch) -> Grade:
        try:
            return self.grader(patch) if self.grader is not None else self._own_grade(patch)
        except ArtifactError as error:
            reason = Reason(ReasonCode.PATCH_UNREADABLE, str(error))
            return Grade(self.verdict.artifact_id, False, reason, tests=False)
        except SsrError:
            raise
        except Exception as error:
            reason = Reason(ReasonCode.INTERNAL_ERROR, describe_unexpected(error))
            return Grade(self.verdict.artifact_id, None, reason)


def _stored_votes(data: Mapping[str, Any] | None, version: str) -> tuple[list[float | None], RunUsage]:
    """Return the stored votes on a step, and their cost; no votes if the record is incomplete.

    Votes on an earlier trajectory do not count for this one, but their cost does.
    """
    try:
        stored = decode(_StoredVotes, data)
    except StoreError:
        return [], RunUsage()
    is_current = stored.trajectory == version and all(v is None or -1 <= v <= 1 for v in stored.votes)
    return (stored.votes if is_current else []), stored.spent


@dataclass(frozen=True, slots=True)
class _StoredVotes:
    """The votes on a step, as they are stored."""

    votes: list[float | None]
    spent: RunUsage
    trajectory: str
    """The version of the trajectory that they are about."""


def validated_verdict(
    artifact: BugArtifact,
    runner: Runner,
    store: Store,
    *,
    extra_checks: Sequence[NamedCheck] = (),
    begin: Callable[[], None] = lambda: None,
) -> Verdict:
    """Return the verdict on an artifact, from the store or by validating it now.

    Stored verdicts of another environment, other settings or another version of this package do not count. Of several
    callers at a time, one validates and the others wait.
    extra_checks: those that plugins add. begin: called before the validation. Raises ArtifactError if the artifact is
    not valid.
    """
    verdicts = Verdicts(store, runner, extra_checks=names_of(extra_checks))
    artifact_id = artifact.content_id(runner.snapshot.tree_hash)
    verdict = verdicts.get(artifact_id)
    if verdict is not None and verdict.valid:
        return verdict
    with store.alone(f"verdict-{artifact_id}"):
        verdict = verdicts.get(artifact_id)
        if verdict is not None and verdict.valid:
            return verdict
        begin()
        verdict = validate(artifact, runner.scoped(), extra_checks=extra_checks)
        if not verdict.valid:
            raise ArtifactError(f"the artifact is not valid: {verdict.explanation}")
        verdicts.put(verdict)
    return verdict


def count_resolved(rollouts: Sequence[Attempt]) -> tuple[int, int]:
    """Return the number of resolved rollouts, and the number of graded ones."""
    grades = [r.verdict for r in rollouts if r.verdict is not None]
    return sum(grades), len(grades)
