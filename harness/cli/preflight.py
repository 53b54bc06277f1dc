"""Find what stands in the way of a command before anything is measured, and name all of it at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from harness.rollouts.player_factory import PlayerFactory
from pytest_ssr.errors import DiskFullError, MissingExtraError, ModelError, SettingsError, SsrError

T = TypeVar("T")
_LEAST_BYTES = 64 << 20
"""Less free space than this is no place for a run's results."""


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

    def end(self, players: PlayerFactory, store: Path) -> None:
        """Raise SettingsError if a part could not be opened, if a server refuses a request, or if the disk is full.

        players: their models are sent a short request each. store: where results will be.
        """
        self._obstacles += players.failures()
        free = shutil.disk_usage(next(folder for folder in (store, *store.absolute().parents) if folder.exists())).free
        if free < _LEAST_BYTES:
            # Alone: for a job it is no fault of its own.
            problem = f"the disk of {store} has {free >> 20} MiB left; results need space (--store)"
            raise DiskFullError(problem, option="store")
        if len(self._obstacles) == 1 and isinstance(self._obstacles[0], SettingsError | MissingExtraError):
            raise self._obstacles[0]
        if self._obstacles:
            lines = dict.fromkeys(str(error) for error in self._obstacles)
            raise SettingsError("the command cannot run:" + "".join(f"\n  {line}" for line in lines))
