"""Open the players of a run on the machines of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.cli.players import chosen_judge, chosen_solver, open_players, share_of
from harness.executors.node import Node
from harness.injectors.campaign import ArtifactInjector
from harness.rollouts.attempts_work import Players
from harness.rollouts.player_factory import PlayerFactory
from harness.settings.commands import PlaySettings
from harness.settings.players import PlayerSettings
from pytest_ssr.installed_plugins import load_extensions


@dataclass(frozen=True, slots=True)
class PlayersRecipe:
    """Opens the players of `ssr play` on a machine; its methods are sent there."""

    players: PlayerSettings
    injector: str
    strategy: str
    rejections: int

    @classmethod
    def of(cls, settings: PlaySettings) -> PlayersRecipe:
        """Return the recipe for a command's settings."""
        return cls(settings.players, settings.injector, settings.strategy, settings.rejections)

    def open_solver(self, node: Node) -> Players:
        """Return the solver and the judge of a machine."""
        factory = self._factory(node)
        return Players(chosen_solver(self.players, factory), chosen_judge(self.players.judge, factory))

    def open_injector(self, node: Node) -> ArtifactInjector:
        """Return the model that injects on a machine."""
        factory = self._factory(node)
        store = node.store.root
        return factory.injector(self.injector, strategy=self.strategy, rejections=self.rejections, store=store)

    def _factory(self, node: Node) -> PlayerFactory:
        """Return the factory of this machine's players, which have a share of the budget."""
        shared = replace(self.players, budget=share_of(self.players.budget, node.workers))
        return node.once(
            ("players", repr(self)),
            # Plugins that are installed on this machine.
            lambda: open_players(shared, node.store.root, load_extensions()),
        )
