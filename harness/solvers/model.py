"""A solver that runs a model with tools on the buggy tree and the improved tests; the model submits its tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.agents.attempt import run_attempt
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.prompts import DEFAULT, Prompts
from harness.agents.tools.bash import Bash
from harness.agents.tools.editor import Editor
from harness.agents.tools.protocol import Observation, Tool, ToolBundle, further_tools
from harness.agents.tools.submit import Submit, SubmitPatch
from harness.agents.workspace import Workspace
from harness.models.protocol import Model, hash_path, identity_of, label_of
from harness.records.messages import Sampling
from harness.records.trajectory import Journal
from harness.solvers.protocol import Solution, SolverTask, render_task
from harness.solvers.submission import SubmissionForm, SubmissionSettings
from harness.solvers.work import SolverWork, start_of
from pytest_ssr.storage.store import key_of

_SUBMIT = "Submit the current tree. This ends the work, unless nothing is changed."
_SUBMIT_FILE = "Submit a patch file: a git diff of the project's code. It must apply to the project as it was at first."


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
    submission: SubmissionSettings = SubmissionSettings()
    prompts: Prompts = DEFAULT

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
        """A hash of everything that an attempt depends on."""
        bundles = [hash_path(b.folder) for b in self.bundles]
        model = identity_of(self.model)
        # The key of the defaults is that of earlier releases.
        defaults = (SubmissionSettings(), DEFAULT.key)
        more = [item for item in (self.submission, self.prompts.key) if item not in defaults]
        return key_of(model, self.limits, self.sampling, bundles, self.observe_as, self.context_tokens, *more)

    def _submit(self, work: SolverWork) -> Tool:
        if self.submission.form is SubmissionForm.TREE:
            return submit_tree(work.collect)
        return SubmitPatch(_SUBMIT_FILE, work.collect_file)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Run one attempt in a new sandbox; raises SettingsError if the settings allow no attempt."""
        work = SolverWork(task, start_of(task), most=self.submission.most)
        agent = Agent(
            self.model,
            solver_tools(self._submit(work), self.bundles),
            self.limits,
            replace(self.sampling, seed=seed),
            self.observe_as,
            partial_result=work.collect_partial,
            submitted=work.submitted,
        )
        task_text = render_task(task, self.prompts)
        done = run_attempt(
            agent,
            journal,
            work.open,
            system=solver_system(self.submission, self.prompts),
            task=lambda _: task_text,
            bundles=self.bundles,
        )
        return Solution(work.patch, done)


def solver_system(submission: SubmissionSettings = SubmissionSettings(), prompts: Prompts = DEFAULT) -> str:
    """Return the system prompt of all solvers with tools."""
    return prompts.fill("solver_system", submission=submission.instructions(prompts))


def submit_tree(collect: Callable[[Workspace], Observation]) -> Tool:
    """Return the tool that submits the changes of a tree. collect: called when they are submitted."""
    return Submit(_SUBMIT, collect)


def solver_tools(submit: Tool, bundles: Sequence[ToolBundle] = ()) -> list[Tool]:
    """Return the tools of a solver."""
    return [Bash(), Editor(), *further_tools(bundles), submit]
