"""Find what stands in the way of a command before anything is measured, and name all of it at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from harness.rollouts.player_factory import PlayerFactory
from pytest_ssr.errors import (
    MissingExtraError,
    ModelError,
    ModelUnavailableError,
    ServersAwayError,
    SettingsError,
    SsrError,
)
from pytest_ssr.storage.free_space import require_space

T = TypeVar("T")


class Preflight:
    """Opens the parts of a command, and collects the errors."""

    def __init__(self) -> None:
        self._obstacles: list[SsrError] = []

    def take(self, open_part: Callable[[], T]) -> T:
        """Return a part; None if it cannot be opened, in which case `end` raises the error."""
        try:
            return open_part()
        except (SettingsError, MissingExtraError, ModelError) as error:
            self._obstacles.append(error)
            return cast(T, None)

    def end(self, players: PlayerFactory, folder: Path, option: str = "store") -> None:
        """Raise SettingsError if a part could not be opened, if a server refuses a request, or if the disk is full.

        players: their models are sent a short request each. folder: where results will be; option: its option.
        """
        self._obstacles += players.failures()
        # Alone: for a job it is no fault of its own.
        require_space(folder, option)
        # Two roles of one model have the same obstacle.
        obstacles = {str(error): error for error in self._obstacles}
        first = next(iter(obstacles.values()), None)
        if len(obstacles) == 1 and isinstance(first, SettingsError | MissingExtraError):
            raise first
        if obstacles:
            is_away = all(isinstance(error, ModelUnavailableError) for error in obstacles.values())
            kind = ServersAwayError if is_away else SettingsError
            raise kind("the command cannot run:" + "".join(f"\n  {line}" for line in obstacles))
