"""Run attempts at an artifact on any machine: a unit is one attempt, by its number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from harness.agents.process_reward import ProcessReward
from harness.executors.node import Node
from harness.executors.protocol import Cluster
from harness.executors.runner_recipe import RunnerRecipe
from harness.records.attempt import Attempt
from harness.records.trajectory import ExitReason
from harness.rollouts.runner import RolloutRunner
from harness.solvers.protocol import Solver
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.baseline_store import baseline_files, project_baseline

MACHINE_FAULTS = (ReasonCode.SANDBOX_FAILED, ReasonCode.OUT_OF_MEMORY, ReasonCode.WORKER_LOST)
"""Reasons for no grade that another machine may not have."""


def machine_fault(result: Attempt, codes: Collection[ReasonCode]) -> Reason | None:
    """Return the reason for a missing grade if it is one of these, or if the infrastructure failed; otherwise None."""
    is_fault = result.reason.code in codes or result.exit_reason == str(ExitReason.INFRA)
    return result.reason if result.verdict is None and is_fault else None


@dataclass(frozen=True, slots=True)
class Players:
    """The players of rollouts, open on one machine.

    Those of which nothing is open, such as the search, are sent as they are: they are their own recipe.
    """

    solver: Solver
    """Makes the attempts."""
    judge: ProcessReward | None = None
    """Scores their steps."""

    def __call__(self, node: Node) -> Players:
        """Return these players."""
        return self


PlayersRecipe = Callable[[Node], Players]
"""Opens the players on another machine; it is pickled."""


@dataclass(frozen=True, slots=True)
class AttemptsWork:
    """The attempts at an artifact; see Work."""

    rollouts: RolloutRunner
    players: PlayersRecipe | None = None
    """Opens the players elsewhere; None to send them."""

    def stored(self, attempt: int) -> Attempt | None:
        """Return an attempt if the store has it with its grade."""
        return self.rollouts.stored_attempt(attempt)

    def run(self, attempt: int) -> Attempt:
        """Run an attempt, and grade it."""
        return self.rollouts.run(attempt)

    def fault(self, result: Attempt) -> Reason | None:
        """Return why an attempt has no grade, if that may be because of the machine."""
        return machine_fault(result, MACHINE_FAULTS)

    def place(self, attempt: int) -> str:
        """Return an empty string: all units need the same."""
        return ""

    def ahead(self, attempt: int) -> None:
        """Return None: the project is sent with the first unit."""

    def send(self, attempt: int, cluster: Cluster) -> int:
        """Return the number: the recipe has the rest."""
        return attempt

    def recipe(self, cluster: Cluster) -> AttemptsRecipe:
        """Return how other machines run the attempts, with the baseline of this one."""
        rollouts = self.rollouts
        runner, baseline = rollouts.runner, {}
        if rollouts.baseline is not None:
            # Measured here at the latest, so that all machines compare with the same one.
            project_baseline(runner, rollouts.store)
            baseline = baseline_files(runner, rollouts.store, ())
        return AttemptsRecipe(
            RunnerRecipe.of(runner, cluster),
            rollouts.artifact,
            rollouts.verdict,
            self.players or Players(rollouts.solver, rollouts.judge),
            rollouts.seed,
            rollouts.grade_unsubmitted,
            rollouts.statement,
            rollouts.rule,
            baseline,
        )

    def close(self) -> None:
        """Remove the tree."""
        self.rollouts.close()


@dataclass(frozen=True)
class AttemptsRecipe:
    """Opens the attempts at an artifact on another machine."""

    runner: RunnerRecipe
    artifact: BugArtifact
    verdict: Verdict
    players: PlayersRecipe
    seed: int
    grade_unsubmitted: bool
    statement: str
    rule: Rule
    baseline: Mapping[str, bytes]
    """The records of the project's baseline; empty if grades use none."""

    def __call__(self, node: Node) -> AttemptsWork:
        """Return the attempts."""
        node.add_cached(self.baseline)
        runner, players = self.runner.open(node), self.players(node)
        rollouts = RolloutRunner(
            runner,
            self.artifact,
            self.verdict,
            players.solver,
            node.store,
            seed=self.seed,
            grade_unsubmitted=self.grade_unsubmitted,
            statement=self.statement,
            rule=self.rule,
            judge=players.judge,
        )
        if self.baseline:
            rollouts = replace(rollouts, baseline=lambda: project_baseline(runner, node.store))
        return AttemptsWork(rollouts)
