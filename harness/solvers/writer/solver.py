"""The solver `lm:MODEL`: a language model on this machine writes candidates, and the tests decide, as in the search."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from harness.local_models.sampling import Sampler
from harness.solvers.search.solver import Proposer, SearchSolver
from harness.solvers.search.workspace import SearchWorkspace
from harness.solvers.writer.failing_test import failure_of
from harness.solvers.writer.proposals import WrittenRepairs
from pytest_ssr.storage.store import key_of

LM = "lm"


def is_writer(solver: str) -> bool:
    """Return whether a solver's name is that of a language model on this machine that writes repairs."""
    return solver.partition(":")[0] == LM


@dataclass(slots=True, kw_only=True)
class WriterSolver(SearchSolver):
    """Repairs by what a language model writes."""

    sampler: Sampler
    name: str = LM
    tries: int = 100
    """Number of tries of one attempt, as for the search, and of replies of the model."""
    temperature: float = 0.7
    shows_failure: bool = True
    """Whether the model is told of a failing test."""

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on."""
        return key_of(LM, self.sampler.key, self.tries, self.wall_s, self.temperature, self.shows_failure)

    @property
    def reads_machine(self) -> bool:
        """Whether it could read other files than the task's: what a model has written could, when it is run."""
        return True

    def proposer(self, workspace: SearchWorkspace, rng: Random) -> Proposer:
        """Return what proposes the candidates of an attempt."""
        failure = failure_of(workspace) if self.shows_failure else None
        return WrittenRepairs(workspace, self.sampler, rng, self.tries, self.temperature, failure)
