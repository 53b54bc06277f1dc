"""A solver that repeats recorded attempts: the same trajectory, byte for byte; only the grade is made anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.agents.desk import Desk
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.messages import Sampling
from harness.models.replay import Recording
from harness.solvers.protocol import Solution, SolverTask
from harness.trajectory import ExitReason, Journal, Trajectory, read_trajectory
from pytest_ssr.errors import ArtifactError, SettingsError
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits

NAME = "trajectory.jsonl"


@dataclass(frozen=True, slots=True)
class ReplaySolver:
    """Repeats the attempts of a folder."""

    path: Path

    @property
    def name(self) -> str:
        """As users name it."""
        return f"replay:{self.path}"

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Repeat the attempt of the same number at the same task."""
        wanted = (task.id, journal.trajectory.attempt)
        found = next((t for t in self._recorded() if (t.task_id, t.attempt) == wanted), None)
        if found is None:
            why = f"{self.path} holds no attempt {wanted[1] + 1} at {task.id}"
            return Solution(None, journal.end(ExitReason.MODEL, why))
        done = repeat(found, journal)
        try:
            patch = Patch.parse(str(done.result["patch"]).encode()) if "patch" in done.result else None
        except ArtifactError:
            patch = None
        return Solution(patch, done)

    def _recorded(self) -> list[Trajectory]:
        files = sorted(self.path.rglob(NAME)) if self.path.is_dir() else [self.path]
        if not files:
            raise SettingsError(f"{self.path} holds no {NAME} to be replayed")
        return [read_trajectory(f) for f in files]


def repeat(recorded: Trajectory, journal: Journal) -> Trajectory:
    """Let a recorded rollout happen again and write it down; raises SettingsError for one without messages."""
    if len(recorded.messages) < 2:
        raise SettingsError(f"the rollout {recorded.rollout_id} holds no messages to be replayed")
    journal.become(recorded)
    recording = Recording(recorded)
    told = recorded.provenance.get("limits", {})
    agent = Agent(
        recording,
        recording.tools(),
        RolloutLimits(**{**told, "wall_s": 1e9}),
        Sampling(**{**recorded.sampling, "seed": None}),
        str(recorded.provenance.get("observe_as", "tool")),
        recording,
    )
    system, task = recorded.messages[0].content, recorded.messages[1].content
    return agent.run(system, task, Desk(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits()), journal)
