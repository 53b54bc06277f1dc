"""The solver that is a model with tools: it sees the buggy tree and the improved tests, and hands in its tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from harness.agents.collecting import patch_of
from harness.agents.desk import Desk
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.opening import open_desk
from harness.agents.prompts import prompt
from harness.agents.tools.bash import Bash
from harness.agents.tools.editor import Editor
from harness.agents.tools.protocol import Observation, Tool, ToolBundle, further_tools, schema_of
from harness.agents.tools.submit import Submit
from harness.messages import Sampling
from harness.models.identity import hash_of, identity_of
from harness.models.protocol import Model
from harness.models.spending import BudgetSpentError
from harness.solvers.protocol import Solution, SolverTask
from harness.trajectory import ExitReason, Journal
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, ModelError, SandboxError
from pytest_ssr.execution.interpreter import Interpreter
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.snapshot import take_snapshot
from pytest_ssr.store import key_of

_LISTING = Limits(wall_s=120.0)
_SUBMIT = "Hand in the tree as it is now. It ends the work, unless nothing is changed."


@dataclass(frozen=True, slots=True)
class ModelSolver:
    """Lets a model work on a task."""

    model: Model
    limits: RolloutLimits = RolloutLimits()
    sampling: Sampling = Sampling()
    bundles: Sequence[ToolBundle] = ()
    """Tools besides `bash`, `editor` and `submit`."""
    observe_as: str = "tool"

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def key(self) -> str:
        """Everything that an attempt depends on."""
        bundles = [hash_of(b.folder) for b in self.bundles]
        return key_of(identity_of(self.model), self.limits, self.sampling, bundles, self.observe_as)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Make one attempt in a fresh sandbox."""
        start = CodebaseState(replace(take_snapshot(task.folder, task.scratch / "trees"), origin=task.origin))
        handed_in: list[Patch] = []

        def take(desk: Desk) -> Observation:
            try:
                patch = patch_of(desk.sandbox, task.interpreter, start, limits=_LISTING)
            except ArtifactError as error:
                return Observation(f"this cannot be handed in: {error}", 1)
            if not patch.data.strip():
                return Observation("nothing is changed; there is nothing to hand in", 1)
            handed_in.append(patch)
            return Observation("handed in", 0, done=True, result={"patch": patch.data.decode("utf-8", "replace")})

        tools: list[Tool] = [Bash(), Editor(), *further_tools(self.bundles), Submit(_SUBMIT, take)]
        journal.describe(
            tools=[schema_of(t) for t in tools],
            sampling=asdict(self.sampling),
            limits=asdict(self.limits),
            observe_as=self.observe_as,
        )
        words = {"root": task.origin, "specification": _shown(task.specification), "statement": task.statement}
        text = prompt("solver_statement" if task.statement else "solver_task", **words)
        try:
            model = self.model.session(journal.trajectory.rollout_id)
            agent = Agent(model, tools, self.limits, replace(self.sampling, seed=seed), self.observe_as)
            with open_desk(task.provider, task.interpreter, task.folder, shown_at=task.origin) as desk:
                for bundle in self.bundles:
                    bundle.install(desk)
                done = agent.run(prompt("solver_system"), text, desk, journal)
                if not handed_in and done.status == "truncated":
                    handed_in += _left(desk, task.interpreter, start)
        except BudgetSpentError:
            raise
        except ModelError as error:
            done = journal.end(ExitReason.MODEL, str(error))
        except SandboxError as error:
            done = journal.end(ExitReason.INFRA, str(error))
        return Solution(handed_in[-1] if handed_in else None, done)

    def close(self) -> None:
        """Close the model."""
        self.model.close()


def _shown(patch: Patch) -> str:
    return patch.data.decode("utf-8", "replace").rstrip("\n").replace("```", "` ` `")


def _left(desk: Desk, interpreter: Interpreter, start: CodebaseState) -> list[Patch]:
    """Return what an attempt that passed a limit has changed so far."""
    try:
        patch = patch_of(desk.sandbox, interpreter, start, limits=_LISTING)
    except (ArtifactError, SandboxError):
        return []
    return [patch] if patch.data.strip() else []
