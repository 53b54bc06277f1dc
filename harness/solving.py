"""Attempts at one artifact: each from a fresh tree, graded from a pristine one, kept, and never made twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from harness.episode import Rollout
from harness.rewards import solver_reward
from harness.solvers.protocol import Solution, Solver, SolverTask
from harness.tasks import open_task
from harness.trajectory import ExitReason, Journal, Trajectory
from harness.version import code_hash
from pytest_ssr.artifact import BugArtifact
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.folders import discard, new_folder
from pytest_ssr.store import Store, key_of
from pytest_ssr.verdict import Verdict

ROLLOUTS = "rollouts"
TRAJECTORY, PATCH, DONE = "trajectory.jsonl", "patch.diff", "rollout"


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
    _task: SolverTask | None = None
    _folder: Path | None = None
    _grades: dict[str, Grade] = field(default_factory=dict)

    def attempts(
        self, count: int, *, jobs: int = 1, progress: Callable[[Rollout], None] = lambda _: None
    ) -> list[Rollout]:
        """Make the attempts that are not there yet, several at a time, and return all of them in order."""
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
                with ThreadPoolExecutor(min(jobs, len(missing))) as pool:
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
            getattr(self.solver, "key", self.solver.name),
            self.seed,
            self.grade_unsubmitted,
            attempt,
        )

    def known(self, attempt: int) -> Rollout | None:
        """Return an attempt that the store holds, if it has a grade."""
        data = self.store.record(f"{ROLLOUTS}/{self.key(attempt)}", DONE)
        found = Rollout.from_json(data) if data is not None else None
        return found if found is not None and found.resolved is not None else None

    def attempt(self, attempt: int) -> Rollout:
        """Make one attempt and grade it."""
        key = self.key(attempt)
        folder = self.store.root / ROLLOUTS / key
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
        solution = self.solver.solve(self.task(), seed=seed, journal=Journal(trajectory, folder / TRAJECTORY))
        seconds = time.monotonic() - begin
        rollout = self._graded(solution, key, attempt, seed, seconds, folder)
        self.store.put_record(f"{ROLLOUTS}/{key}", DONE, rollout.to_json())
        return rollout

    def task(self) -> SolverTask:
        """Return what the solver is given; its tree is written once, before attempts run side by side."""
        if self._task is None:
            self._folder = new_folder()
            self._task = open_task(self.bench, self.artifact, self._folder)
        return self._task

    def close(self) -> None:
        """Let go of the tree and of what the solver keeps for it."""
        release = getattr(self.solver, "release", None)
        if self._task is not None and release is not None:
            release(self._task)
        if self._folder is not None:
            discard(self._folder)
        self._task = self._folder = None

    def _graded(self, solution: Solution, key: str, attempt: int, seed: int, seconds: float, folder: Path) -> Rollout:
        done = solution.trajectory
        patch = solution.patch
        if patch is not None and done.exit_reason is not ExitReason.SUBMITTED and not self.grade_unsubmitted:
            patch = None
        begin = time.monotonic()
        if done.status == "aborted":
            grade = Grade(self.verdict.artifact_id, None, f"no grade: {done.exit_reason}: {done.detail}")
        elif patch is None or not patch.data.strip():
            ended = f"{done.exit_reason}: {done.detail}" if done.detail else str(done.exit_reason)
            grade = Grade(self.verdict.artifact_id, False, f"no patch: the attempt ended by {ended}")
        else:
            (folder / PATCH).write_bytes(patch.data)
            grade = self._grade(patch)
        usage = done.usage
        return Rollout(
            id=key,
            attempt=attempt,
            solver=self.solver.name,
            seed=seed,
            resolved=grade.resolved,
            reward=solver_reward(grade.resolved),
            reason=grade.reason,
            exit_reason=str(done.exit_reason),
            status=done.status,
            patch_sha256=hashlib.sha256(patch.data).hexdigest() if patch is not None and patch.data.strip() else "",
            flags=grade.flags,
            forged=grade.forged,
            steps=len(done.steps),
            tokens=usage.prompt_tokens + usage.completion_tokens,
            cost_usd=round(done.cost_usd, 6),
            seconds=round(seconds, 3),
            grading_s=round(time.monotonic() - begin, 3),
        )

    def _grade(self, patch: Patch) -> Grade:
        """Grade a patch; the same patch, handed in again, has the same grade."""
        name = hashlib.sha256(patch.data).hexdigest()
        if name not in self._grades:
            try:
                grade = grade_patch(
                    self.bench.scoped(),
                    self.artifact,
                    patch,
                    fail_to_pass=self.verdict.fail_to_pass,
                    pass_to_pass=self.verdict.pass_to_pass,
                )
            except ArtifactError as error:
                grade = Grade(self.verdict.artifact_id, False, f"the patch cannot be read: {error}")
            if grade.resolved is None:
                return grade
            self._grades[name] = grade
        return self._grades[name]


def rates(rollouts: Sequence[Rollout]) -> tuple[int, int]:
    """Return how many are resolved, and how many have a grade."""
    grades = [r.resolved for r in rollouts if r.resolved is not None]
    return sum(grades), len(grades)
