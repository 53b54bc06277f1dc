"""Tasks of injectors: a project to inject a bug into, with a reward from its validation and from solvers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

from harness.agents.patch_collector import collect_patch
from harness.agents.prompts import prompt
from harness.agents.tools.protocol import Tool
from harness.agents.workspace import Workspace
from harness.environments.scores import TESTS
from harness.environments.task import Outcome, Tasks, interpreter_of, names_of, path_of
from harness.injectors.campaign import described
from harness.injectors.model import (
    STRATEGIES,
    SYSTEM_PROMPT,
    InjectionSession,
    injection_prompt,
    injector_tools,
    open_injection,
    usable_strategies,
)
from harness.injectors.project_history import History, history_of
from harness.records.messages import ToolCall
from harness.records.rewards import ALPHA, KINDS, injector_reward, solve_rate
from harness.records.trajectory import Trajectory
from harness.rollouts.player_factory import PlayerFactory
from harness.rollouts.runner import RolloutRunner
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ProjectError, SandboxError, SettingsError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.sandbox import require_sandbox_name
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import Verdicts


@dataclass(frozen=True, slots=True)
class ProjectTasks:
    """Projects to inject bugs into."""

    projects: Sequence[Path | str]
    """The projects' folders."""
    store: Path | str = ""
    """The store of valid bugs; by default `.ssr` in each project."""
    strategy: str = "direct"
    """One of `STRATEGIES`; of two, one is drawn for each episode."""
    sandbox: str = "auto"
    """The name of the sandbox; `auto` chooses one with isolation."""
    python: Path | str | None = None
    """The interpreter that runs the projects' tests."""
    settings: RuleSettings = RuleSettings()
    """The thresholds of the checks."""
    rejections: int = 2
    """How many times a rejected bug may be fixed."""
    reward: str = "validity"
    """`validity`, or `solve-rate`, for which `solver` attempts each valid bug."""
    solver: str = "search"
    """The name of the solver."""
    attempts: int = 4
    """The number of its attempts at each bug."""
    alpha: float = ALPHA
    """The penalty of a bug that is solved always or never."""
    role: ClassVar[str] = "injector"

    def __post_init__(self) -> None:
        """Turn strings into paths; raises SettingsError for an invalid value."""
        object.__setattr__(self, "projects", names_of(self.projects, "projects"))
        object.__setattr__(self, "store", path_of(self.store, "store") if self.store else "")
        object.__setattr__(self, "python", interpreter_of(self.python))
        if not self.projects:
            raise SettingsError("`projects` takes a list of at least one folder")
        if self.strategy not in STRATEGIES:
            raise SettingsError(f"{self.strategy!r} is not a strategy; choose from {', '.join(STRATEGIES)}")
        if self.reward not in KINDS:
            raise SettingsError(f"{self.reward!r} is not an injector reward; choose from {', '.join(KINDS)}")
        if self.attempts < 1 or self.rejections < 0:
            raise SettingsError(f"attempts must be at least 1 and rejections 0, not {self.attempts}, {self.rejections}")

    def check(self, scores: Collection[str]) -> None:
        """Raise ProjectError for a missing folder, SettingsError for an unknown sandbox and for the score `tests`."""
        if TESTS in scores:
            # Only a bug to repair has such tests.
            raise SettingsError(f"the score {TESTS!r} is for repairs; an injector has 'outcome' and 'process'")
        require_sandbox_name(self.sandbox)
        for project in self.projects:
            if not Path(project).is_dir():
                raise ProjectError(f"{project} is not a folder")

    def open(self) -> Tasks:
        """Open the projects."""
        players = PlayerFactory()
        ids = [str(project) for project in self.projects]
        return Tasks(ids, lambda task_id: self._task(task_id, players), players.close)

    def _task(self, task_id: str, players: PlayerFactory) -> InjectTask:
        """Return a project as a task; raises ProjectError if it cannot be used."""
        project = Path(task_id)
        store = Store(Path(self.store) if self.store else project / ".ssr")
        python = interpreter_of(self.python)
        runner = open_runner(
            project, store, settings=self.settings, sandbox=self.sandbox, python=python, model_written=True
        )
        return InjectTask(task_id, self, runner, store, players)


@dataclass(slots=True)
class InjectTask:
    """One project to inject bugs into."""

    id: str
    source: ProjectTasks
    runner: Runner
    store: Store
    players: PlayerFactory
    role: ClassVar[str] = "injector"

    @property
    def system(self) -> str:
        """The system prompt of our own injectors."""
        return prompt(SYSTEM_PROMPT)

    def start(self, *, seed: int) -> InjectWork:
        """Return the work of a new episode; raises ProjectError if the project has no history for the strategy."""
        snapshot = self.runner.snapshot
        history = history_of(snapshot.origin)
        strategies = usable_strategies(self.source.strategy, snapshot, history)
        return InjectWork(self, Random(seed).choice(strategies), seed, history)

    def close(self) -> None:
        """Do nothing: each episode removes its own tree."""


class InjectWork:
    """The work on a project in one episode, with its verdict."""

    def __init__(self, task: InjectTask, strategy: str, seed: int, history: History | None) -> None:
        self._task, self._strategy, self._seed, self._history = task, strategy, seed, history
        self._session = InjectionSession(task.runner, task.source.rejections)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of our own injectors."""
        return injector_tools(self._session.collect)

    @property
    def patch(self) -> Patch | None:
        """The bug that was submitted."""
        return self._session.artifact.bug if self._session.artifact is not None else None

    def open(self) -> AbstractContextManager[Workspace]:
        """Return the workspace, which opens a sandbox on the project."""
        return open_injection(self._task.runner, self._strategy, self._history)

    def prompt(self, workspace: Workspace) -> str:
        """Return the conditions of a bug and the strategy."""
        return injection_prompt(self._task.runner, workspace, self._strategy)

    def diff(self, workspace: Workspace) -> Patch:
        """Return the changes of the project's tree so far."""
        runner = self._task.runner
        return collect_patch(workspace.sandbox, runner.interpreter, CodebaseState(runner.snapshot))

    def action(self, text: str) -> ToolCall | None:
        """Return None: calls are in fenced blocks."""
        return None

    def partial_result(self, workspace: Workspace) -> Mapping[str, object]:
        """Return nothing: only five complete files are a bug."""
        return {}

    def tests_passing(self, patch: Patch) -> float | None:
        """Return None: only a bug to repair has such tests."""
        return None

    def outcome(self, done: Trajectory) -> Outcome:
        """Return the verdict on the bug and its reward; a valid bug is stored."""
        session, kind = self._session, self._task.source.reward
        if done.status == "aborted":
            return Outcome(None, None, str(ReasonCode.ATTEMPT_ABORTED), f"{done.exit_reason}: {done.detail}")
        reason, verdict, artifact = session.reason(done), session.verdict, session.artifact
        if reason is not None or verdict is None or artifact is None:
            code, text = (str(reason.code), reason.text) if reason is not None else ("", "")
            failed: dict[str, object] = {"check": verdict.rejected_by if verdict is not None else ""}
            return Outcome(injector_reward(False), False, code, text, failed)
        task = self._task
        Verdicts(task.store, task.runner).put(verdict)
        info = described(
            artifact,
            verdict,
            snapshot=task.runner.snapshot,
            strategy=self._strategy,
            seed=self._seed,
            model=done.model,
            rollout=done.rollout_id,
        )
        task.store.put_artifact(verdict.artifact_id, info)
        details: dict[str, object] = {"artifact": verdict.artifact_id, "fail_to_pass": len(verdict.fail_to_pass)}
        if kind == "validity":
            return Outcome(injector_reward(True, kind=kind), True, "valid", "the bug is valid", details)
        rate = self._solve_rate()
        reward = injector_reward(True, rate, alpha=task.source.alpha, kind=kind)
        return Outcome(reward, True, "valid", "the bug is valid", {**details, "solve_rate": rate})

    def _solve_rate(self) -> float | None:
        """Return the solve rate of the bug; None if no attempt has a grade."""
        task, session = self._task, self._session
        assert session.artifact is not None
        assert session.verdict is not None
        rollouts = RolloutRunner(
            task.runner.scoped(),
            session.artifact,
            session.verdict,
            task.players.solver(task.source.solver),
            task.store,
            seed=self._seed,
            baseline=lambda: project_baseline(task.runner, task.store),
        )
        try:
            return solve_rate([r.verdict for r in rollouts.attempts(task.source.attempts)])
        except SandboxError:
            return None
