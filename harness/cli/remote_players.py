"""Open the players of a run on the machines of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agents.process_reward import ProcessReward
from harness.cli.executors import is_remote
from harness.cli.players import chosen_judge, chosen_solver, open_players, share_of
from harness.executors.node import Node
from harness.injectors.campaign import ArtifactInjector
from harness.models.factory import is_started_late
from harness.rollouts.attempts_work import FixedPlayers
from harness.rollouts.player_factory import PlayerFactory
from harness.settings.commands import PlaySettings
from harness.settings.sections import PlayerSettings
from pytest_ssr.errors import SettingsError


@dataclass(frozen=True, slots=True)
class _Recipe:
    players: PlayerSettings
    typed: frozenset[str]
    injector: str
    strategy: str
    rejections: int

    @classmethod
    def of(cls, settings: PlaySettings) -> _Recipe:
        return cls(settings.players, settings.typed, settings.injector, settings.strategy, settings.rejections)

    def factory(self, node: Node) -> PlayerFactory:
        """Return the factory of this machine's players, which have a share of the budget."""
        shared = replace(self.players, budget=share_of(self.players.budget, node.workers))
        return node.once(
            ("players", repr(self)),
            lambda: open_players(shared, self.typed, node.store.root, injector=self.injector),
        )


@dataclass(frozen=True, slots=True)
class SolverRecipe:
    """Opens the solver and the judge."""

    recipe: _Recipe

    @classmethod
    def of(cls, settings: PlaySettings) -> SolverRecipe:
        """Return the recipe for a command's settings."""
        return cls(_Recipe.of(settings))

    def __call__(self, node: Node) -> FixedPlayers:
        """Open them on a machine."""
        factory, players = self.recipe.factory(node), self.recipe.players
        judge: ProcessReward | None = chosen_judge(players.judge, factory)
        return FixedPlayers(chosen_solver(players, factory), judge)


@dataclass(frozen=True, slots=True)
class InjectorRecipe:
    """Opens the model that injects."""

    recipe: _Recipe

    @classmethod
    def of(cls, settings: PlaySettings) -> InjectorRecipe:
        """Return the recipe for a command's settings."""
        return cls(_Recipe.of(settings))

    def __call__(self, node: Node) -> ArtifactInjector:
        """Open it on a machine."""
        recipe = self.recipe
        return recipe.factory(node).injector(recipe.injector, strategy=recipe.strategy, rejections=recipe.rejections)


def require_reachable(ray: str, *models: str) -> None:
    """Raise SettingsError if a model's server would be started on each machine of a cluster."""
    for name in models:
        if is_remote(ray) and is_started_late(name):
            raise SettingsError(
                f"{name} would be started on every node of the cluster; start its server once, and name it vllm:URL",
                option="ray",
            )
