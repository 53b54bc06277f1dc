"""Run the attempts of a model that injects on any machine: a unit is one attempt, by its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.executors.node import Node
from harness.executors.protocol import Cluster, VersionsDifferError
from harness.executors.runner_recipe import RunnerRecipe
from harness.injectors.campaign import ArtifactInjector, ModelCampaign
from pytest_ssr.checks import NamedCheck
from pytest_ssr.records.candidate_result import CandidateResult

InjectorRecipe = Callable[[Node], ArtifactInjector]
"""Opens the injector on another machine; it is pickled."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """The attempts of a model; see Work."""

    campaign: ModelCampaign
    injector: InjectorRecipe | None = None
    """Opens the injector elsewhere; None to send it, because nothing of it is open."""

    def run(self, index: int) -> CandidateResult | None:
        """Run an attempt."""
        return self.campaign.attempt(index)

    def stored(self, index: int) -> CandidateResult | None:
        """Return an attempt if the store has it."""
        return self.campaign.stored(index)

    def fault(self, result: CandidateResult | None) -> None:
        """Return None: a sandbox that fails raises an error."""

    def place(self, index: int) -> str:
        """Return an empty string: all units need the same."""
        return ""

    def ahead(self, index: int) -> None:
        """Return None: the project is sent with the first unit."""

    def send(self, index: int, cluster: Cluster) -> int:
        """Return the number: the recipe has the rest."""
        return index

    def recipe(self, cluster: Cluster) -> ModelRecipe:
        """Return how other machines run the attempts."""
        campaign = self.campaign
        runner = RunnerRecipe.of(campaign.runner, cluster)
        return ModelRecipe(
            runner,
            self.injector or FixedInjector(campaign.injector),
            campaign.seed,
            campaign.key,
            campaign.extra_checks,
        )

    def close(self) -> None:
        """Leave the campaign to those who opened it."""


@dataclass(frozen=True, slots=True)
class FixedInjector:
    """An injector that is sent as it is."""

    injector: ArtifactInjector

    def __call__(self, node: Node) -> ArtifactInjector:
        """Return it."""
        return self.injector


@dataclass(frozen=True)
class ModelRecipe:
    """Opens the attempts of a model on another machine."""

    runner: RunnerRecipe
    injector: InjectorRecipe
    seed: int
    key: str
    extra_checks: Sequence[NamedCheck]

    def __call__(self, node: Node) -> ModelWork:
        """Return the attempts; raises VersionsDifferError if they would be others than those of the run."""
        campaign = ModelCampaign(
            self.runner.open(node), node.store, self.injector(node), seed=self.seed, extra_checks=self.extra_checks
        )
        if campaign.key != self.key:
            raise VersionsDifferError(
                "the attempts would be others on this machine: the model or the project's git history differ from "
                "where the run was started"
            )
        return ModelWork(campaign)
