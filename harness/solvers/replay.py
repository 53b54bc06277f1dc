"""A solver that replays recorded attempts byte for byte; only the grade is computed again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agents.loop import record_end
from harness.agents.replay import Recordings, repeat
from harness.records.trajectory import ExitReason, Journal, read_trajectory
from harness.solvers.protocol import Solution, SolverTask, decode_patch
from pytest_ssr.errors import ArtifactError, ModelError, StoreError


@dataclass(frozen=True, slots=True)
class ReplaySolver(Recordings):
    """Replays the solvers' rollouts of a folder."""

    role = "solver"

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Replay the attempt with the same number at the same task.

        A missing recording, or one that cannot be reproduced, has no grade. Raises SettingsError if several match.
        """
        with record_end(journal):
            path = self.find((task.id, journal.trajectory.attempt), seed)
        if path is None:
            reason = f"{self.path} contains no attempt {journal.trajectory.attempt + 1} at {task.id}"
            return Solution(None, journal.end(ExitReason.MODEL, reason))
        try:
            done = repeat(read_trajectory(path), journal)
            return Solution(decode_patch(done.result), done)
        except (ModelError, ArtifactError, StoreError) as error:
            done = journal.end(ExitReason.MODEL, f"{path}: {error}")
            return Solution(None, replace(done, exit_reason=ExitReason.MODEL, detail=f"{path}: {error}"))
