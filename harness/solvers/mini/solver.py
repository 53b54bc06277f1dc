"""A solver that runs mini-swe-agent with its own prompts, loop and model calls, in our sandbox and with our limits.

The submission is the diff of the sandbox's tree, as for any solver, not the output that the agent prints; the file that
the agent's prompt makes it print is not part of the diff.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.agents.limits import RolloutLimits
from harness.agents.loop import record_end
from harness.agents.patch_collector import collect_patch
from harness.agents.turns import EndOfRollout
from harness.agents.workspace import Workspace, open_workspace
from harness.models.budget import Budget
from harness.models.registry import Price
from harness.models.timeouts import TIMEOUT_S
from harness.models.urls import masked
from harness.models.wire import request_of
from harness.records.messages import Sampling
from harness.records.trajectory import ExitReason, Journal, is_truncated
from harness.solvers.mini import PREFIX
from harness.solvers.mini.process import DRIVER, Process
from harness.solvers.mini.session import Session
from harness.solvers.protocol import Solution, SolverTask, encode_patch, render_task
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.patch import Patch
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.storage.store import key_of

NATIVE = "mini-swe-agent.traj.json"
"""The file with a rollout's trajectory in mini-swe-agent's own format, next to ours."""
_PRINTED = "patch.txt"
_VLLM = "hosted_vllm/"


@dataclass(frozen=True, slots=True)
class MiniSolver:
    """Solves tasks with mini-swe-agent."""

    model: str
    """The model as PROVIDER/MODEL, in litellm's naming."""
    python: Path
    """The interpreter of mini-swe-agent's own environment."""
    versions: str = ""
    """The versions of its packages that results depend on."""
    limits: RolloutLimits = RolloutLimits()
    sampling: Sampling = Sampling()
    budget: Budget = field(default_factory=Budget)
    """The budget of the whole run."""
    url: str = ""
    """The URL of the model's server, if it is not the provider's."""
    timeout_s: float = TIMEOUT_S
    """Seconds until a reply must be complete."""
    driver: Path = DRIVER
    """The script that the interpreter runs."""
    price: Price | None = None
    """The model's price; None for that of litellm."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{PREFIX}{masked(self.model)}"

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on."""
        return key_of(self.name, self.versions, masked(self.url), self.limits, self.sampling)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Run one attempt in a new sandbox; raises SettingsError if the interpreter cannot be started."""
        start = CodebaseState(
            replace(take_snapshot(task.folder, task.scratch / "trees", needs_python=False), origin=task.origin)
        )
        work, sampling = _Work(start, task.interpreter), replace(self.sampling, seed=seed)
        journal.describe(tools=[], sampling=asdict(sampling), limits=asdict(self.limits))
        sessions: list[Session] = []
        try:
            with (
                record_end(journal),
                open_workspace(task.provider, task.interpreter, task.folder, shown_at=task.origin) as workspace,
                Process(self.python, self.model, self.url, driver=self.driver) as process,
            ):
                sessions.append(
                    Session(process, workspace, journal, self.limits, self.budget, work.collect, self.price)
                )
                try:
                    sessions[0].run(self._job(task, sampling))
                except EndOfRollout as end:
                    if is_truncated(end.reason):
                        work.collect_partial(workspace)
                    journal.end(end.reason, end.detail, work.result(end.reason))
        finally:
            for native in filter(None, (s.native() for s in sessions)):
                journal.write_sibling(NATIVE, json.dumps(native, indent=1) + "\n")
        return Solution(work.patch, journal.trajectory)

    def _job(self, task: SolverTask, sampling: Sampling) -> Mapping[str, Any]:
        request = request_of(self.model, (), (), sampling)
        settings = {k: v for k, v in request.items() if k not in ("model", "messages", "seed")}
        settings |= {"timeout": self.timeout_s, "num_retries": 0, "drop_params": True}
        if self.url:
            settings["api_base"] = self.url
        if self.model.startswith(_VLLM):
            settings |= {"logprobs": True, "extra_body": {"return_token_ids": True}}
        return {
            "root": str(task.origin),
            "task": render_task(task),
            "seed": sampling.seed,
            "timeout": int(self.limits.command_s),
            "agent": {
                "step_limit": self.limits.steps,
                "cost_limit": self.limits.usd,
                "max_consecutive_format_errors": self.limits.format_errors,
            },
            "model": {"model_name": self.model, "model_kwargs": settings, "cost_tracking": "ignore_errors"},
        }


class _Work:
    """Collects the patch of one attempt."""

    def __init__(self, start: CodebaseState, interpreter: Interpreter) -> None:
        self._start, self._interpreter = start, interpreter
        self.patch: Patch | None = None
        self._error = ""

    def collect(self, workspace: Workspace) -> str:
        """Collect the patch; return why the tree cannot be submitted, or an empty string."""
        if self._start.entry(_PRINTED) is None:
            # If the path is not a file, it stays and is collected like everything else.
            with contextlib.suppress(SandboxError):
                workspace.sandbox.remove(_PRINTED)
        try:
            self.patch = collect_patch(workspace.sandbox, self._interpreter, self._start)
        except ArtifactError as error:
            return str(error)
        return ""

    def collect_partial(self, workspace: Workspace) -> None:
        """Collect the patch so far of an attempt that passed a limit."""
        try:
            self._error = self.collect(workspace)
        except SandboxError as error:
            self._error = str(error)

    def result(self, reason: ExitReason) -> Mapping[str, object]:
        """Return the result of the rollout."""
        if self._error:
            return {"left": f"the partial work cannot be submitted: {self._error}"}
        is_changed = self.patch is not None and bool(self.patch.data.strip())
        return (
            encode_patch(self.patch)
            if self.patch is not None and (is_changed or reason is ExitReason.SUBMITTED)
            else {}
        )
