"""A solver that runs a model with tools on the buggy tree and the improved tests; the model submits its tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.agents.attempt import run_attempt
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.patch_collector import collect_patch
from harness.agents.prompts import prompt
from harness.agents.tools.bash import Bash
from harness.agents.tools.editor import Editor
from harness.agents.tools.protocol import Observation, Tool, ToolBundle, further_tools
from harness.agents.tools.submit import Submit
from harness.agents.workspace import Workspace, open_workspace
from harness.models.protocol import Model, hash_path, identity_of
from harness.records.messages import Sampling
from harness.records.trajectory import Journal
from harness.solvers.protocol import Solution, SolverTask, encode_patch, render_task
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.patch import Patch
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.storage.store import key_of

_SUBMIT = "Submit the current tree. This ends the work, unless nothing is changed."


@dataclass(frozen=True, slots=True)
class ModelSolver:
    """Solves tasks with a model."""

    model: Model
    limits: RolloutLimits = RolloutLimits()
    sampling: Sampling = Sampling()
    bundles: Sequence[ToolBundle] = ()
    """Tools besides `bash`, `editor` and `submit`."""
    observe_as: str = "tool"
    context_tokens: int = 0
    """The configured context window of the model, which affects its prompts; 0 for the server's value."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on."""
        bundles = [hash_path(b.folder) for b in self.bundles]
        model = identity_of(self.model)
        return key_of(model, self.limits, self.sampling, bundles, self.observe_as, self.context_tokens)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Run one attempt in a new sandbox; raises SettingsError if the settings allow no attempt."""
        start = CodebaseState(replace(take_snapshot(task.folder, task.scratch / "trees"), origin=task.origin))
        work = _Work(start, task.interpreter)
        agent = Agent(
            self.model,
            solver_tools(work.collect, self.bundles),
            self.limits,
            replace(self.sampling, seed=seed),
            self.observe_as,
            partial_result=work.collect_partial,
        )
        task_text = render_task(task)
        done = run_attempt(
            agent,
            journal,
            lambda: open_workspace(task.provider, task.interpreter, task.folder, shown_at=task.origin),
            system=prompt("solver_system"),
            task=lambda _: task_text,
            bundles=self.bundles,
        )
        return Solution(work.patch, done)


def solver_tools(collect: Callable[[Workspace], Observation], bundles: Sequence[ToolBundle] = ()) -> list[Tool]:
    """Return the tools of a solver. collect: called when the tree is submitted."""
    return [Bash(), Editor(), *further_tools(bundles), Submit(_SUBMIT, collect)]


class _Work:
    """Collects the patch of one attempt."""

    def __init__(self, start: CodebaseState, interpreter: Interpreter) -> None:
        self._start, self._interpreter = start, interpreter
        self.patch: Patch | None = None

    def collect(self, workspace: Workspace) -> Observation:
        """Collect the patch, unless nothing is changed or the tree cannot be submitted."""
        try:
            patch = collect_patch(workspace.sandbox, self._interpreter, self._start)
        except ArtifactError as error:
            return Observation(f"this cannot be submitted: {error}", 1)
        if not patch.data.strip():
            return Observation("nothing is changed; there is nothing to submit", 1)
        self.patch = patch
        return Observation("submitted", 0, done=True, result=encode_patch(patch))

    def collect_partial(self, workspace: Workspace) -> Mapping[str, object]:
        """Collect the patch so far of an attempt that passed a limit, or the reason why it cannot be submitted."""
        try:
            patch = collect_patch(workspace.sandbox, self._interpreter, self._start)
        except (ArtifactError, SandboxError) as error:
            return {"left": f"the partial work cannot be submitted: {error}"}
        if not patch.data.strip():
            return {}
        self.patch = patch
        return encode_patch(patch)
