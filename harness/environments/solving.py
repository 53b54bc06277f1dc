"""Tasks of solvers: a bug to repair, graded as in `ssr solve` and `ssr run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.agents.prompts import prompt
from harness.agents.tools.protocol import Tool
from harness.agents.workspace import Workspace
from harness.environments.task import Outcome
from harness.records.rewards import solver_reward
from harness.records.trajectory import Journal, Trajectory
from harness.rollouts.runner import RolloutRunner
from harness.rollouts.submission import submission_of
from harness.solvers.model import SYSTEM_PROMPT, solver_tools
from harness.solvers.protocol import Solution, SolverTask, render_task
from harness.solvers.work import SolverWork, start_of
from pytest_ssr.errors import SandboxError, SettingsError
from pytest_ssr.grading import Grade, TestStatus
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule


class ExternalSolver:
    """Stands for the agent of an environment, which steps through its tasks by itself."""

    name = "environment"

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Raise SettingsError: nobody but the environment's user can solve a task."""
        raise SettingsError("an environment's agent acts by step() and cannot be run as a solver")


@dataclass(slots=True)
class SolveTask:
    """One bug to repair."""

    id: str
    rollouts: RolloutRunner
    """Prepares the task, and grades patches."""
    role: ClassVar[str] = "solver"
    _start: CodebaseState | None = None

    @property
    def system(self) -> str:
        """The system prompt of our own solvers."""
        return prompt(SYSTEM_PROMPT)

    def start(self, *, seed: int) -> SolveWork:
        """Return the work of a new episode; raises LeakError if an agent could read the fix."""
        task = self.rollouts.task()
        if self._start is None:
            self._start = start_of(task)
        return SolveWork(self.rollouts, task, self._start)

    def close(self) -> None:
        """Remove the task's tree."""
        self.rollouts.close()
        self._start = None


class SolveWork(SolverWork):
    """The work on a bug in one episode, with its grade."""

    def __init__(self, rollouts: RolloutRunner, task: SolverTask, start: CodebaseState) -> None:
        super().__init__(task, start)
        self._rollouts, self._prompt = rollouts, render_task(task)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of our own solvers."""
        return solver_tools(self.collect)

    def prompt(self, workspace: Workspace) -> str:
        """Return the description of the task."""
        return self._prompt

    def partial_result(self, workspace: Workspace) -> Mapping[str, object]:
        """Collect the patch so far."""
        return self.collect_partial(workspace)

    def tests_passing(self, patch: Patch) -> float | None:
        """Return the share of the FAIL_TO_PASS tests that pass with a patch; None without a grade."""
        grade = self._grade(patch)
        if grade.resolved is None:
            return None
        statuses = list(grade.fail_to_pass.values())
        return statuses.count(TestStatus.PASSED) / len(statuses) if statuses else 0.0

    def outcome(self, done: Trajectory) -> Outcome:
        """Grade the patch."""
        submission = submission_of(Solution(self.patch, done), grade_unsubmitted=self._rollouts.grade_unsubmitted)
        resolved, reason = submission.resolved, submission.reason
        details: dict[str, object] = {"tests": resolved, "flags": []}
        if submission.patch is not None and submission.status != "aborted":
            grade = self._grade(submission.patch)
            rule: Rule = self._rollouts.rule
            resolved, reason = grade.verdict(rule), grade.reason
            details = {"tests": grade.tests, "flags": [str(flag.code) for flag in grade.flags]}
        return Outcome(solver_reward(resolved), resolved, str(reason.code), reason.text, details)

    def _grade(self, patch: Patch) -> Grade:
        try:
            return self._rollouts.grade(patch)
        except SandboxError as error:
            return Grade(self._rollouts.verdict.artifact_id, None, Reason(ReasonCode.SANDBOX_FAILED, str(error)))
