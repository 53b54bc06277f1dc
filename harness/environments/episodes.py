"""Begin the episodes of one environment, one after the other."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from harness.agents.limits import RolloutLimits
from harness.datasets.instance import InstanceError
from harness.environments.episode import Episode, EpisodeSettings, Turn
from harness.environments.extensions import load_tools
from harness.environments.scores import OUTCOME, load_scores
from harness.environments.task import EpisodeTask, Tasks, TaskSource, names_of, path_of
from harness.records.trajectory import ExitReason
from harness.rollouts.player_factory import PlayerFactory, read_bundles
from pytest_ssr.errors import ActionError, ArtifactError, ProjectError, SettingsError

ORDERS = ("random", "in-order", "curriculum")


class TaskOrder:
    """Chooses tasks, and counts the outcomes that the curriculum depends on."""

    def __init__(self, name: str) -> None:
        """Raise SettingsError for an unknown name."""
        if name not in ORDERS:
            raise SettingsError(f"there is no order {name!r}; choose from {', '.join(ORDERS)}")
        self._name = name
        self._next = 0
        self.counts: dict[str, tuple[int, int]] = {}
        """Successes and failures of each task so far."""

    def choose(self, ids: Sequence[str], rng: Random, skipped: Collection[str] = ()) -> str:
        """Return the next task that is not skipped; at least one is not.

        `curriculum` samples a success rate p for each task from its posterior under a uniform prior, and returns the
        task with the largest p (1 - p): the variance of the outcome, without which a policy gradient vanishes.
        """
        if self._name == "in-order":
            while ids[self._next % len(ids)] in skipped:
                self._next += 1
            chosen = ids[self._next % len(ids)]
            self._next += 1
            return chosen
        usable = [task for task in ids if task not in skipped]
        if self._name == "random":
            return rng.choice(usable)
        rates = {task: rng.betavariate(1 + good, 1 + bad) for task in usable for good, bad in [self._counts(task)]}
        return max(usable, key=lambda task: rates[task] * (1 - rates[task]))

    def restart(self) -> None:
        """Begin again with the first task; the counts are kept."""
        self._next = 0

    def record(self, task: str, success: bool | None) -> None:
        """Count an outcome; an episode without a grade does not count."""
        if success is not None:
            good, bad = self._counts(task)
            self.counts[task] = (good + success, bad + (not success))

    def _counts(self, task: str) -> tuple[int, int]:
        return self.counts.get(task, (0, 0))


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
    skip_unusable: bool = False
    """If the task that the order has chosen cannot be played, take the next one; by default it is an error."""

    def __post_init__(self) -> None:
        """Raise SettingsError for an unknown order, or a value of another type."""
        TaskOrder(self.order)
        if not isinstance(self.limits, RolloutLimits):
            raise SettingsError(f"`limits` takes RolloutLimits(...), not {self.limits!r}")
        if not isinstance(self.scores, Mapping | None):
            raise SettingsError(
                f"`scores` takes the weight of each score, such as {{'outcome': 1.0}}, not {self.scores!r}"
            )
        object.__setattr__(self, "tools", names_of(self.tools, "tools"))
        object.__setattr__(self, "bundles", names_of(self.bundles, "bundles"))
        object.__setattr__(self, "record", None if self.record is None else path_of(self.record, "record"))


class Episodes:
    """The episodes of one environment. The tasks are opened, and the first sandbox, when the first episode begins."""

    def __init__(self, tasks: TaskSource, settings: EnvironmentSettings) -> None:
        """Check the settings and the tasks; raises SettingsError for an invalid one, ProjectError for no project."""
        self._source, self._order = tasks, TaskOrder(settings.order)
        self._players = PlayerFactory()
        load_tools(settings.tools)
        scores = settings.scores or {OUTCOME: 1.0}
        judge = self._players.judge(settings.judge) if settings.judge else None
        self._skips = settings.skip_unusable
        self._skipped: dict[str, str] = {}
        self._settings = EpisodeSettings(
            limits=settings.limits,
            scores=load_scores(scores, judge),
            tools=lambda: load_tools(settings.tools),
            bundles=read_bundles([Path(folder) for folder in settings.bundles]),
            record=Path(settings.record) if settings.record is not None else None,
        )
        tasks.check(scores)
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
        environment is closed, SettingsError for an unknown task, the errors of a task that cannot be played, and
        SandboxError if no sandbox can be opened.
        """
        if self._closed:
            raise ActionError("the environment is closed")
        self._end()
        if self._tasks is None:
            self._tasks = self._source.open()
        seed = secrets.randbelow(_SEED_LIMIT) if seed is None else seed
        if task or not self._skips:
            opened = self._tasks.task(task or self._order.choose(self._tasks.ids, Random(seed)))
            self._current = self._episode(opened, seed)
        else:
            self._current = self._first_usable(self._tasks, seed)
        self._count += 1
        return self._current

    def _episode(self, task: EpisodeTask, seed: int) -> Episode:
        return Episode(task, self._settings, seed=seed, number=self._count, skipped=self._skipped)

    def _first_usable(self, tasks: Tasks, seed: int) -> Episode:
        """Return an episode of the first task in the order that can be played; raises SettingsError if none can."""
        rng = Random(seed)
        while len(self._skipped) < len(tasks.ids):
            chosen = self._order.choose(tasks.ids, rng, self._skipped)
            try:
                return self._episode(tasks.task(chosen), seed)
            except (ArtifactError, InstanceError, ProjectError) as error:
                self._skipped[chosen] = " ".join(str(error).split())
        name, reason = next(iter(self._skipped.items()))
        raise SettingsError(f"none of the {len(tasks.ids)} tasks can be played; the first, {name}: {reason}")

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
