"""Begin the episodes of one environment, one after the other."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from harness.agents.limits import RolloutLimits
from harness.environments.episode import Episode, EpisodeSettings, Turn
from harness.environments.extensions import load_tools
from harness.environments.order import TaskOrder
from harness.environments.scores import OUTCOME, load_scores
from harness.environments.task import Tasks, TaskSource
from harness.records.trajectory import ExitReason
from harness.rollouts.player_factory import PlayerFactory, read_bundles
from pytest_ssr.errors import ActionError

_SEED_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """The settings of an environment besides its tasks; they can be sent to another process."""

    order: str = "random"
    """How the next task is chosen: one of `ORDERS`."""
    limits: RolloutLimits = RolloutLimits()
    scores: Mapping[str, float] | None = None
    """The weight of each score in the reward; by default the outcome alone."""
    judge: str = ""
    """The name of the model of the score `process`."""
    tools: Sequence[str] = ()
    """Names of entry points `pytest_ssr.tools`."""
    bundles: Sequence[Path | str] = ()
    """Folders of further tools in SWE-agent's layout."""
    record: Path | str | None = None
    """A folder for trajectories; None: they are not written."""


class Episodes:
    """The episodes of one environment. The tasks are opened, and the first sandbox, when the first episode begins."""

    def __init__(self, tasks: TaskSource, settings: EnvironmentSettings) -> None:
        """Check the settings; raises SettingsError for an invalid one."""
        self._source, self._order = tasks, TaskOrder(settings.order)
        self._players = PlayerFactory()
        load_tools(settings.tools)
        judge = self._players.judge(settings.judge) if settings.judge else None
        self._settings = EpisodeSettings(
            limits=settings.limits,
            scores=load_scores(settings.scores or {OUTCOME: 1.0}, judge),
            tools=lambda: load_tools(settings.tools),
            bundles=read_bundles([Path(folder) for folder in settings.bundles]),
            record=Path(settings.record) if settings.record is not None else None,
        )
        self._tasks: Tasks | None = None
        self._current: Episode | None = None
        self._count = 0
        self._closed = False

    @property
    def current(self) -> Episode:
        """The current episode; raises ActionError before the first reset."""
        if self._current is None:
            raise ActionError("the environment is closed" if self._closed else "there is no episode; call reset first")
        return self._current

    def has(self, task: str) -> bool:
        """Return whether a task of this id existed when the tasks were opened; true if they are not open yet."""
        return self._tasks is None or task in self._tasks.ids

    def begin(self, *, seed: int | None = None, task: str = "") -> Episode:
        """Begin an episode; one that has not ended is closed without a grade.

        seed: by default a new one. task: the id of its task; by default the order chooses. Raises ActionError if the
        environment is closed, SettingsError for an unknown task, and SandboxError if no sandbox can be opened.
        """
        if self._closed:
            raise ActionError("the environment is closed")
        self._end()
        if self._tasks is None:
            self._tasks = self._source.open()
        seed = secrets.randbelow(_SEED_LIMIT) if seed is None else seed
        chosen = task or self._order.choose(self._tasks.ids, Random(seed))
        self._current = Episode(self._tasks.task(chosen), self._settings, seed=seed, number=self._count)
        self._count += 1
        return self._current

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Turn:
        """Call a tool in the current episode."""
        return self._counted(self.current.call(tool, arguments))

    def write(self, text: str) -> Turn:
        """Take one step of the current episode with a reply in plain text, whose fenced block is a tool call."""
        return self._counted(self.current.write(text))

    def stop(self, detail: str, reason: ExitReason = ExitReason.STEP_LIMIT) -> Turn:
        """End the current episode as a limit does."""
        return self._counted(self.current.stop(detail, reason))

    def _counted(self, turn: Turn) -> Turn:
        """Count the outcome of a turn that ends the episode, for the curriculum."""
        if turn.outcome is not None:
            self._order.record(self.current.task_id, turn.outcome.success)
        return turn

    def restart_order(self) -> None:
        """Begin again with the first task of an order."""
        self._order.restart()

    def close(self) -> None:
        """Close the sandbox, the task and the judge; idempotent."""
        self._closed = True
        self._end()
        if self._tasks is not None:
            self._tasks.close()
        self._tasks = None
        self._players.close()

    def _end(self) -> None:
        if self._current is not None:
            self._current.close()
        self._current = None
