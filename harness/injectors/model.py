"""An injector that runs a model with tools on the project and its history; the model submits the five files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from harness.agents.attempt import require_room, run_attempt
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent, record_end
from harness.agents.prompts import DEFAULT, Prompts
from harness.agents.tools.bash import Bash
from harness.agents.tools.editor import Editor
from harness.agents.tools.protocol import Observation, Tool, ToolBundle, further_tools
from harness.agents.tools.submit import Submit
from harness.agents.workspace import Workspace, open_workspace
from harness.injectors.artifact_codec import encode_artifact
from harness.injectors.project_history import History, history_of, write_history
from harness.models.protocol import Model, hash_path, identity_of, label_of
from harness.records.messages import Sampling
from harness.records.trajectory import Journal, Trajectory
from pytest_ssr.checks import NamedCheck
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError, ProjectError, SandboxError, SettingsError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.solver_checkout import write_solver_tree
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import FIVE_FILES, MAX_FILE_BYTES, PROMPT_NAMES, BugArtifact, read_artifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.sandbox.filesystem.workdirs import discard, new_folder
from pytest_ssr.storage.store import key_of

STRATEGIES = ("direct", "removal", "history", "removal+history")
SYSTEM_PROMPT = "injector_system"
"""The name of the system prompt of all injectors with tools."""
SCRIPT_S = 90
"""Seconds that a script may take by the prompts of the paper, which nothing checks there."""
_SUBMIT = "Submit the five files. They are validated; the response gives the reason of a rejection, if you may fix it."


@dataclass(frozen=True, slots=True)
class Injected:
    """The result of one attempt at a bug."""

    artifact: BugArtifact | None
    """The last submitted artifact; None if it cannot be read."""
    verdict: Verdict | None
    """The verdict on the artifact."""
    strategy: str
    """The requested strategy: direct, removal or history."""
    trajectory: Trajectory
    reason: CheckReason | None
    """Why the bug is not valid; None if it is."""
    operator: str = ""
    """What made the bug, if not the injector itself."""
    parent: str = ""
    """The artifact of which the bug is a failed repair; empty for a bug that is not one."""

    @property
    def valid(self) -> bool:
        """Whether the bug is valid."""
        return self.verdict is not None and self.verdict.valid


@dataclass(frozen=True, slots=True)
class ModelInjector:
    """Injects bugs with a model."""

    model: Model
    strategy: str = "removal+history"
    """One of `STRATEGIES`. The last one is the paper's best mixture of two: one of them, drawn with the seed.

    In a project without a git history, the mixture is `removal` alone.
    """
    limits: RolloutLimits = RolloutLimits()
    sampling: Sampling = Sampling()
    rejections: int = 2
    """How many times the model may fix a rejected bug, given the reason of the verdict."""
    observe_as: str = "tool"
    bundles: Sequence[ToolBundle] = ()
    """Tools besides `bash`, `editor` and `submit`."""
    context_tokens: int = 0
    """The configured context window of the model, which affects its prompts; 0 for the server's value."""
    histories: Mapping[Path, History] = field(default_factory=dict)
    """The histories of projects whose folder is not in their repository, by the folder."""

    prompts: Prompts = DEFAULT

    def __post_init__(self) -> None:
        """Raise SettingsError for an unknown strategy or a negative number of rejections."""
        if self.rejections < 0:
            raise SettingsError(f"--rejections must be at least 0, not {self.rejections}")
        require_strategy(self.strategy, STRATEGIES)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def label(self) -> str:
        """The model's name in tables; see `label_of`."""
        return label_of(self.model)

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on, except the project."""
        model, bundles = identity_of(self.model), [hash_path(b.folder) for b in self.bundles]
        settings = (self.strategy, self.limits, self.sampling, self.rejections, self.observe_as, self.context_tokens)
        return key_of(model, *settings, bundles, *filter(None, [self.prompts.key]))

    def history(self, snapshot: Snapshot) -> str:
        """Return the last commit of a project's history; empty if the strategy does not use the history."""
        history = self._history(snapshot) if "history" in self.strategy else None
        return history.commit if history is not None else ""

    def inject(
        self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Sequence[NamedCheck] = ()
    ) -> Injected:
        """Run one attempt in a new sandbox; a mistake of the model is a verdict or a reason, never an exception.

        Raises ProjectError if the project has no history that the strategy can use, SettingsError if the settings
        allow no attempt; both before the sandbox is opened.
        """
        with record_end(journal):
            strategy = Random(seed).choice(self.strategies(runner.snapshot))
        journal.trajectory.provenance = {**journal.trajectory.provenance, "strategy": strategy}
        session = InjectionSession(runner, self.rejections, extra_checks)
        tools = injector_tools(session.collect, self.bundles)
        agent = Agent(self.model, tools, self.limits, replace(self.sampling, seed=seed), self.observe_as)
        done = run_attempt(
            agent,
            journal,
            lambda: open_injection(runner, strategy, self._history(runner.snapshot)),
            system=self.prompts.fill(SYSTEM_PROMPT),
            task=lambda workspace: injection_prompt(runner, workspace, strategy, self.prompts),
            bundles=self.bundles,
        )
        return Injected(session.artifact, session.verdict, strategy, done, session.reason(done))

    def strategies(self, snapshot: Snapshot) -> list[str]:
        """Return the strategies that an attempt draws from; raises ProjectError if there are none."""
        return usable_strategies(self.strategy, snapshot, self._history(snapshot))

    def _history(self, snapshot: Snapshot) -> History | None:
        return self.histories.get(snapshot.origin) or history_of(snapshot.origin)

    def require(self, snapshot: Snapshot) -> None:
        """Raise ProjectError or SettingsError if no attempt at the project is possible."""
        self.strategies(snapshot)
        require_room(self.model, self.sampling)


def injector_tools(collect: Callable[[Workspace], Observation], bundles: Sequence[ToolBundle] = ()) -> list[Tool]:
    """Return the tools of an injector. collect: called when the five files are submitted."""
    return [Bash(), Editor(), *further_tools(bundles), Submit(_SUBMIT, collect)]


def injection_prompt(runner: Runner, workspace: Workspace, strategy: str, prompts: Prompts = DEFAULT) -> str:
    """Return the prompt of an attempt: the conditions, the folder of the five files, and the strategy."""
    rule = runner.settings
    values: dict[str, object] = {
        "root": runner.snapshot.origin,
        "tests": "find out what runs its tests" if rule.by_script else "`python -m pytest` runs its tests",
        "folder": f"{workspace.sandbox.scratch}/artifact",
        "min_passing_tests": rule.min_passing_tests,
        "min_changed_files": rule.min_changed_files,
        "min_failing_tests": rule.min_failing_tests,
        "script_seconds": f"{rule.script_limit_s or SCRIPT_S:g}",
        "max_broken_percent": f"{rule.max_broken_fraction:.0%}".rstrip("%"),
    }
    most = rule.max_weakened_failing
    values["weakened"] = f"at most {most:.0%} of the weakened tests fail" if most else "the weakened suite passes"
    strategy_prompt = prompts.fill(f"strategy_{strategy}", min_changed_files=rule.min_changed_files)
    return prompts.fill("injector_task", **values, strategy=strategy_prompt)


class InjectionSession:
    """The submissions of one attempt."""

    def __init__(self, runner: Runner, rejections: int, extra_checks: Sequence[NamedCheck] = ()) -> None:
        """rejections: how many times a rejected bug may be fixed. extra_checks: as for a Validation."""
        self._runner, self._extra_checks = runner, extra_checks
        self._remaining = rejections
        self._reason: CheckReason | None = None
        self.artifact: BugArtifact | None = None
        self.verdict: Verdict | None = None

    def collect(self, workspace: Workspace) -> Observation:
        """Read and validate the five files."""
        self.artifact = self.verdict = None
        try:
            self.artifact = self._read(workspace)
            self.verdict = validate(self.artifact, self._runner.scoped(), extra_checks=self._extra_checks)
            self._reason, text = self.verdict.reason, self.verdict.explanation
        except ArtifactError as error:
            text = str(error)
            self._reason = CheckReason.of(CheckCode.UNREADABLE, error=text)
        if self.verdict is not None and self.verdict.valid:
            result = {"artifact": self.verdict.artifact_id, **self._encoded()}
            return Observation("the bug is valid", 0, done=True, result=result)
        self._remaining -= 1
        if self._remaining < 0:
            result = {"rejected": text, **self._encoded()}
            return Observation(f"rejected: {text}", 1, done=True, result=result)
        return Observation(f"rejected: {text}; fix it and submit again ({self._remaining + 1} more times)", 1)

    def _encoded(self) -> dict[str, object]:
        return encode_artifact(self.artifact) if self.artifact is not None else {}

    def reason(self, done: Trajectory) -> CheckReason | None:
        """Return why the bug is not valid; None if it is."""
        if self.verdict is not None and self.verdict.valid:
            return None
        return self._reason or nothing_submitted(done)

    def _read(self, workspace: Workspace) -> BugArtifact:
        with tempfile.TemporaryDirectory() as folder:
            for name in FIVE_FILES:
                for file_name in (name, PROMPT_NAMES.get(name, name)):
                    try:
                        path = f"{workspace.sandbox.scratch}/artifact/{file_name}"
                        data = workspace.sandbox.read(path, max_bytes=MAX_FILE_BYTES)
                    except FileNotFoundError:
                        continue
                    except SandboxError as error:
                        raise ArtifactError(f"{file_name} cannot be read: {error}") from None
                    Path(folder, name).write_bytes(data)
                    break
            artifact = read_artifact(Path(folder))
        return replace(artifact, info={})


def nothing_submitted(done: Trajectory) -> CheckReason:
    """Return the reason for an attempt that ended without an artifact."""
    return CheckReason.of(CheckCode.NOTHING_SUBMITTED, exit_reason=str(done.exit_reason), cause=done.detail)


def require_strategy(strategy: str, known: Sequence[str]) -> None:
    """Raise SettingsError for a strategy that an injector does not know."""
    if strategy not in known:
        raise SettingsError(f"{strategy!r} is not a strategy; choose from {', '.join(known)}")


def usable_strategies(strategy: str, snapshot: Snapshot, history: History | None) -> list[str]:
    """Return the strategies that an attempt draws from: without `history` if the project has none.

    Raises ProjectError if no strategy remains.
    """
    strategies = strategy.split("+")
    if "history" not in strategies or history is not None:
        return strategies
    strategies.remove("history")
    if not strategies:
        raise ProjectError(
            f"{snapshot.origin} has no git history of its own to revert parts of; choose another strategy than "
            f"`history`: {', '.join(s for s in STRATEGIES if 'history' not in s)}"
        )
    return strategies


@contextlib.contextmanager
def open_injection(runner: Runner, strategy: str, history: History | None) -> Iterator[Workspace]:
    """Open the workspace of an attempt: a sandbox on the project, with its history if the strategy uses it."""
    folder = new_folder()
    try:
        tree = folder / "tree"
        if strategy == "history" and history is not None:
            write_history(history, tree, runner.snapshot.directory)
        else:
            write_solver_tree(CodebaseState(runner.snapshot), tree)
        with open_workspace(runner.provider, runner.interpreter, tree, shown_at=runner.snapshot.origin) as workspace:
            yield workspace
    finally:
        discard(folder)
