"""A solver that repeats recorded attempts: the same trajectory, byte for byte; only the grade is made anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agents.loop import closing
from harness.recordings import Recordings, repeat
from harness.solvers.handing_in import handed_in
from harness.solvers.protocol import Solution, SolverTask
from harness.trajectory import ExitReason, Journal, read_trajectory
from pytest_ssr.errors import ArtifactError, ModelError, StoreError


@dataclass(frozen=True, slots=True)
class ReplaySolver(Recordings):
    """Repeats the solvers' rollouts of a folder."""

    role = "solver"

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Repeat the attempt of the same number at the same task.

        One that is not there, or does not happen as it did, has no grade. Raises SettingsError where several are there.
        """
        with closing(journal):
            found = self.chosen((task.id, journal.trajectory.attempt), seed)
        if found is None:
            why = f"{self.path} holds no attempt {journal.trajectory.attempt + 1} at {task.id}"
            return Solution(None, journal.end(ExitReason.MODEL, why))
        try:
            done = repeat(read_trajectory(found), journal)
            return Solution(handed_in(done.result), done)
        except (ModelError, ArtifactError, StoreError) as error:
            done = journal.end(ExitReason.MODEL, f"{found}: {error}")
            return Solution(None, replace(done, exit_reason=ExitReason.MODEL, detail=f"{found}: {error}"))
