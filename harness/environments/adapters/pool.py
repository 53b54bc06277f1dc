"""Environments for trainers that play many rollouts at the same time in one event loop."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, Self, TypeVar

from harness.agents.limits import RolloutLimits
from harness.environments.episodes import EnvironmentSettings, Episodes
from harness.environments.remote_episodes import open_episodes
from harness.environments.scores import OUTCOME, PROCESS
from harness.environments.solve_tasks import DatasetTasks, StoreTasks
from harness.environments.task import TaskSource
from pytest_ssr.errors import GradingError, SandboxError, SettingsError, SsrError, describe_unexpected

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The tasks and how they are played, as a trainer's own file of settings gives them."""

    project: str = ""
    """The folder of a project that has a store of bugs."""
    dataset: str = ""
    """Instead of a project: rows of the SWE-bench family."""
    store: str = ""
    """The store; by default `.ssr` in the project. A dataset needs one."""
    repos: str = ""
    """A folder of local clones by `owner__name`, for a dataset."""
    images: str = ""
    """`docker` or `apptainer`: run each row of a dataset in its own image."""
    sandbox: str = "auto"
    python: str = ""
    """The interpreter that runs the tests."""
    steps: int = RolloutLimits().steps
    """The largest number of replies."""
    sandboxes: int = 8
    """The largest number of sandboxes at the same time."""
    judge: str = ""
    """The model of the score `process`, which is added to the outcome with the weight `process`."""
    process: float = 0.0
    faults: int = 16
    """The run ends after this many rollouts in a row without a grade."""

    @classmethod
    def read(cls, given: Mapping[str, Any], prefix: str = "") -> Self:
        """Return the settings; raises SettingsError for an unknown or invalid one.

        prefix: of the names in messages.
        """
        types = {item.name: type(item.default) for item in fields(cls)}
        for name, value in given.items():
            if name not in types:
                names = ", ".join(f"{prefix}{known}" for known in types)
                raise SettingsError(f"{prefix}{name} is not a setting; choose from {names}")
            if type(value) is not types[name]:
                raise SettingsError(f"{prefix}{name} takes a value of type {types[name].__name__}, not {value!r}")
        settings = cls(**given)
        if bool(settings.project) == bool(settings.dataset):
            raise SettingsError(f"set either {prefix}project or {prefix}dataset")
        if settings.dataset and not settings.store:
            raise SettingsError(f"{prefix}dataset needs {prefix}store, a folder for environments and results")
        if bool(settings.judge) != (settings.process > 0):
            raise SettingsError(f"{prefix}judge and a positive {prefix}process need each other")
        if min(settings.steps, settings.sandboxes, settings.faults) < 1:
            raise SettingsError(f"{prefix}steps, {prefix}sandboxes and {prefix}faults must be at least 1")
        return settings

    def environment(self) -> EnvironmentSettings:
        """Return how the tasks are played."""
        scores = {OUTCOME: 1.0, PROCESS: self.process} if self.judge else None
        return EnvironmentSettings(limits=RolloutLimits(steps=self.steps), scores=scores, judge=self.judge)

    def source(self) -> TaskSource:
        """Return where the tasks come from."""
        python = self.python or None
        if self.project:
            return StoreTasks(self.project, self.store, sandbox=self.sandbox, python=python)
        return DatasetTasks(
            self.dataset,
            self.store,
            repos=self.repos or None,
            images=self.images,
            sandbox=self.sandbox,
            python=python,
        )


class Pool:
    """The environments of a run, each used by one rollout at a time."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings, self._source = settings, settings.source()
        self._environment = settings.environment()
        self._room = asyncio.Semaphore(settings.sandboxes)
        self._threads = ThreadPoolExecutor(settings.sandboxes, thread_name_prefix="ssr")
        self._idle: list[Episodes] = []
        self._opened: list[Episodes] = []
        self._closing = weakref.finalize(self, _close, self._opened)
        self._failures = 0

    async def play(self, task: str, rollout: Callable[[Episodes], Awaitable[T]]) -> T | None:
        """Run a rollout in an idle or new environment and return its result; None if it failed, which is logged.

        task: for the log. Raises SettingsError, GradingError, and SandboxError after too many failures in a row.
        """
        async with self._room:
            episodes = self._idle.pop() if self._idle else self._open()
            try:
                result = await rollout(episodes)
            except (GradingError, SettingsError):
                raise
            except SsrError as error:
                self._idle.append(episodes)
                self._count_failure(task, f"{type(error).__name__}: {error}")
                return None
            except Exception as error:
                # The environment is not used again, because its state is unknown.
                self._count_failure(task, describe_unexpected(error))
                return None
            self._idle.append(episodes)
        self._failures = 0
        return result

    async def run(self, function: Callable[P, U], *args: P.args, **kwargs: P.kwargs) -> U:
        """Run a function that waits for a sandbox, in a thread."""
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _open(self) -> Episodes:
        episodes = open_episodes(self._source, self._environment)
        self._opened.append(episodes)
        return episodes

    def _count_failure(self, task: str, text: str) -> None:
        self._failures += 1
        _LOG.warning("a rollout of the task %s has no grade: %s", task, text)
        if self._failures >= self._settings.faults:
            raise SandboxError(f"{self._failures} rollouts in a row have no grade; the last one, of {task}: {text}")


pool_of = functools.cache(Pool)
"""Return the pool of these settings, which all rollouts of a process share."""


def _close(opened: list[Episodes]) -> None:
    for episodes in opened:
        episodes.close()
