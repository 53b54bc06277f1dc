"""Tasks of solvers: bugs to repair, from a store or from a dataset, graded as in `ssr solve` and `ssr run`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from harness.agents.tools.protocol import Tool
from harness.agents.workspace import Workspace
from harness.datasets.environments import Environments
from harness.datasets.instance import Instance, InstanceError
from harness.datasets.loading import Selection, read_instances
from harness.datasets.repositories import Repositories
from harness.environments.scores import TESTS
from harness.environments.task import Outcome, Tasks, interpreter_of, names_of, path_of
from harness.evaluation.grading import Grader
from harness.evaluation.work import rollout_runner
from harness.records.messages import ToolCall
from harness.records.rewards import solver_reward
from harness.records.trajectory import Journal, Trajectory
from harness.rollouts.grades import Grades
from harness.rollouts.runner import RolloutRunner, validated_verdict
from harness.rollouts.submission import submission_of
from harness.solvers.model import solver_system, solver_tools, submit_tree
from harness.solvers.protocol import Solution, SolverTask, render_task
from harness.solvers.work import SolverWork, start_of
from pytest_ssr.campaign.factory import RunnerSource, runner_source
from pytest_ssr.errors import ArtifactError, GradingError, ProjectError, SandboxError, SettingsError
from pytest_ssr.execution.script_template import runner_of_artifact, runner_of_script
from pytest_ssr.grading import Grade, TestStatus
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule
from pytest_ssr.sandbox import require_sandbox_name
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, resolve_artifact

_ENGINES = ("docker", "apptainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedTasks:
    """How the tasks of solvers are graded."""

    rule: Rule = Rule.STRICT
    """The verdict of a grade that decides the reward."""
    settings: RuleSettings = RuleSettings()
    grade_unsubmitted: bool = True
    """Also grade the changes of an episode that a limit ended."""
    full_grades: bool = False
    """Run all tests of each grade, even after a failure; the score `tests` needs it."""
    role: ClassVar[str] = "solver"
    _grades: Grades = field(default_factory=Grades, init=False, repr=False, compare=False)
    """All environments of these tasks share them: the members of a group often write the same patch."""

    def _check(self, scores: Collection[str], sandbox: str) -> None:
        """Raise SettingsError for an unknown sandbox, and for the score `tests` without the results of all tests."""
        if TESTS in scores and not self.full_grades:
            raise SettingsError(
                f"the score {TESTS!r} needs the results of all tests; use {type(self).__name__}(..., full_grades=True)"
            )
        require_sandbox_name(sandbox)


@dataclass(frozen=True, slots=True)
class StoreTasks(GradedTasks):
    """The bugs of a store, all in one project."""

    project: Path | str
    """The project's folder."""
    store: Path | str = ""
    """The store; by default `.ssr` in the project."""
    artifacts: Sequence[str] = ()
    """Ids, unique prefixes of ids, or folders of artifacts; by default all of the store."""
    sandbox: str = "auto"
    """The name of the sandbox; `auto` chooses one with isolation."""
    python: Path | str | None = None
    """The interpreter that runs the project's tests."""
    statement: str = ""
    """A description of the task, which replaces the tests to be improved."""

    def __post_init__(self) -> None:
        """Turn strings into paths; raises SettingsError for a value of another type."""
        object.__setattr__(self, "project", path_of(self.project, "project"))
        object.__setattr__(self, "store", path_of(self.store, "store") if self.store else "")
        object.__setattr__(self, "artifacts", names_of(self.artifacts, "artifacts"))
        object.__setattr__(self, "python", interpreter_of(self.python))

    def check(self, scores: Collection[str]) -> None:
        """Raise ProjectError without the project, SettingsError for an unknown sandbox or an impossible score."""
        self._check(scores, self.sandbox)
        if not Path(self.project).is_dir():
            raise ProjectError(f"{self.project} is not a folder; name the project of the bugs")

    def open(self) -> Tasks:
        """Open a runner on the project; raises SettingsError if there is no artifact."""
        project, root = Path(self.project), self._root
        if not root.is_dir():
            raise SettingsError(f"the store {root} does not exist; create bugs in it with ssr inject")
        store = Store(root)
        folders = _find(self.artifacts, store)
        python = interpreter_of(self.python)
        runner_for = runner_source(
            project, store, settings=self.settings, sandbox=self.sandbox, python=python, model_written=True
        )
        for test_runner in dict.fromkeys(map(runner_of_artifact, folders.values())):
            runner_for(test_runner)
        return Tasks(list(folders), lambda task_id: self._task(folders[task_id], runner_for, store))

    @property
    def _root(self) -> Path:
        return Path(self.store) if self.store else Path(self.project) / ".ssr"

    def ids(self) -> list[str]:
        """Return the ids of the bugs that the store has now, which can be none; nothing is opened or run for that."""
        if not self._root.is_dir():
            return []
        store = Store(self._root)
        return list(_find(self.artifacts, store)) if self.artifacts else store.artifact_ids()

    def _task(self, folder: Path, runner_for: RunnerSource, store: Store) -> SolveTask:
        """Return a bug as a task; raises ArtifactError if it is not valid."""
        artifact = read_artifact(folder)
        runner = runner_for(runner_of_script(artifact.script))
        rollouts = RolloutRunner(
            runner.scoped(),
            artifact,
            validated_verdict(artifact, runner.scoped(), store),
            ExternalSolver(),
            store,
            grade_unsubmitted=self.grade_unsubmitted,
            statement=self.statement,
            rule=self.rule,
            full=self.full_grades,
            baseline=lambda: project_baseline(runner, store),
            grades=self._grades,
        )
        return SolveTask(folder.name, rollouts)


def _find(names: Sequence[str], store: Store) -> dict[str, Path]:
    """Return the folders of artifacts by id; raises SettingsError if there are none."""
    if names:
        try:
            return {folder.name: folder for folder in (resolve_artifact(name, store) for name in names)}
        except ArtifactError as error:
            raise SettingsError(str(error)) from None
    ids = store.artifact_ids()
    if not ids:
        raise SettingsError(f"the store {store.root} has no artifacts; create some with ssr inject")
    store.fetch("artifacts")
    return {name: store.root / "artifacts" / name for name in ids}


@dataclass(frozen=True, slots=True)
class DatasetTasks(GradedTasks):
    """The rows of a dataset."""

    dataset: Path | str
    """A file, a folder, or `owner/name` on the hub."""
    store: Path | str
    """The store for trees, environments and results."""
    repos: Path | str | None = None
    """A folder of local clones by `owner__name`."""
    selection: Selection = Selection()
    split: str = ""
    sandbox: str = "auto"
    """The name of the sandbox; `auto` chooses one with isolation."""
    images: str = ""
    """`docker` or `apptainer`: run each row in its own image, instead of `sandbox` and a local environment."""
    python: Path | str | None = None
    """The interpreter of all rows; by default an environment is built for each."""
    show_tests: bool = False
    """Describe a task by its tests, even if its row has a statement."""

    def __post_init__(self) -> None:
        """Turn strings into paths; raises SettingsError for an invalid value."""
        object.__setattr__(self, "dataset", str(path_of(self.dataset, "dataset")))
        object.__setattr__(self, "store", path_of(self.store, "store"))
        object.__setattr__(self, "repos", None if self.repos is None else path_of(self.repos, "repos"))
        object.__setattr__(self, "python", interpreter_of(self.python))
        if self.images not in ("", *_ENGINES):
            raise SettingsError(f"`images` takes {' or '.join(_ENGINES)}, not {self.images!r}")
        if self.images and (self.python is not None or self.sandbox != "auto"):
            raise SettingsError("images have their own sandboxes and interpreters; omit sandbox and python")

    def check(self, scores: Collection[str]) -> None:
        """Raise SettingsError for an unknown sandbox or an impossible score."""
        self._check(scores, self.sandbox)

    def open(self) -> Tasks:
        """Read the dataset; raises RowError for an invalid row, and SettingsError if nothing is selected."""
        selected = self.selection.select(read_instances(str(self.dataset), split=self.split))
        instances = {instance.id: instance for instance in selected}
        has_others = self.images or self.python is not None or self.sandbox not in ("auto", "docker")
        if has_others and any(instance.harbor is not None for instance in selected):
            raise SettingsError(
                f"{self.dataset}: tasks of Harbor run in their own images; omit sandbox, images, python"
            )
        store = Store(Path(self.store))
        grader = Grader(
            store,
            Repositories(store, Path(self.repos) if self.repos is not None else None, images=self.images),
            Environments(store, interpreter_of(self.python)),
            self.settings,
            self.sandbox,
            images=self.images,
            logs=False,
            full=self.full_grades,
            rule=self.rule,
        )
        return Tasks(list(instances), lambda task_id: self._task(instances[task_id], grader), grader.close)

    def _task(self, instance: Instance, grader: Grader) -> SolveTask:
        """Return an instance as a task; raises InstanceError if it does not hold here, or consists of several steps."""
        if instance.harbor is not None and len(instance.harbor.steps) > 1:
            raise InstanceError(f"{instance.id} has several steps, and an episode has one; ssr run solves it")
        rollouts = rollout_runner(
            grader,
            instance,
            ExternalSolver(),
            seed=0,
            grade_unsubmitted=self.grade_unsubmitted,
            statement="" if self.show_tests else instance.statement,
        )
        rollouts.grades = self._grades
        return SolveTask(instance.id, rollouts)


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
        return solver_system()

    def start(self, *, seed: int) -> SolveWork:
        """Return the work of a new episode; raises LeakError if an agent could read the fix."""
        return SolveWork(self.rollouts, *self.opened())

    def opened(self) -> tuple[SolverTask, CodebaseState]:
        """Return the task of a solver, and the state that it begins with; raises LeakError as `start` does."""
        task = self.rollouts.task()
        if self._start is None:
            self._start = start_of(task)
        return task, self._start

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
        return solver_tools(submit_tree(self.collect))

    def prompt(self, workspace: Workspace) -> str:
        """Return the description of the task."""
        return self._prompt

    def action(self, text: str) -> ToolCall | None:
        """Return None: calls are in fenced blocks."""
        return None

    def partial_result(self, workspace: Workspace) -> Mapping[str, object]:
        """Collect the patch so far."""
        return self.collect_partial(workspace)

    def tests_passing(self, patch: Patch) -> float | None:
        """Return the share of the FAIL_TO_PASS tests that pass with a patch; None without a grade.

        A task that names no tests has a verifier, whose verdict stands for them.
        """
        grade = self._grade(patch)
        if grade.resolved is None:
            return None
        statuses = list(grade.fail_to_pass.values())
        return statuses.count(TestStatus.PASSED) / len(statuses) if statuses else float(grade.resolved)

    def outcome(self, done: Trajectory) -> Outcome:
        """Grade the patch; raises GradingError if a defect prevents that."""
        submission = submission_of(Solution(self.patch, done), grade_unsubmitted=self._rollouts.grade_unsubmitted)
        resolved, reason = submission.resolved, submission.reason
        details: dict[str, object] = {"tests": resolved, "flags": []}
        if submission.patch is not None and submission.status != "aborted":
            grade = self._grade(submission.patch)
            resolved, reason = grade.verdict(self._rollouts.rule), grade.reason
            details = {"tests": grade.tests, "flags": [str(flag.code) for flag in grade.flags]}
        return Outcome(solver_reward(resolved), resolved, str(reason.code), reason.text, details)

    def _grade(self, patch: Patch) -> Grade:
        try:
            grade = self._rollouts.grade(patch)
        except SandboxError as error:
            return Grade(self._rollouts.verdict.artifact_id, None, Reason(ReasonCode.SANDBOX_FAILED, str(error)))
        if grade.reason.code is ReasonCode.INTERNAL_ERROR:
            raise GradingError(
                f"the patch of {self._rollouts.verdict.artifact_id} cannot be graded: {grade.reason.text}"
            )
        return grade
