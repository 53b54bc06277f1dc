"""Begin the episodes of an environment here, or in a sandbox slot of a cluster: a trainer's GPU nodes have none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from harness.environments.episode import Turn
from harness.environments.episodes import EnvironmentSettings, Episodes
from harness.environments.task import Outcome, TaskSource
from harness.executors.protocol import is_remote
from harness.executors.slots import measured_slots
from harness.records.trajectory import ExitReason, Trajectory
from pytest_ssr.errors import ActionError, MissingExtraError, SandboxError
from pytest_ssr.interrupts import workers

_A = TypeVar("_A")
_R = TypeVar("_R")

EXECUTOR = "SSR_EXECUTOR"
_SCHEME = "ray://"


class State(NamedTuple):
    """What is shown of an episode besides its turns."""

    task_id: str
    system: str
    prompt: str
    tools: Any
    steps_left: int
    seconds_left: float
    outcome: Outcome | None
    skipped: Mapping[str, str]


class HostedEpisodes:
    """Episodes on a node, whose answers can be sent."""

    def __init__(self, tasks: TaskSource, settings: EnvironmentSettings) -> None:
        self._episodes = Episodes(tasks, settings)

    def begin(self, seed: int | None, task: str) -> State:
        """Begin an episode."""
        self._episodes.begin(seed=seed, task=task)
        return self._state()

    def turn(self, method: str, *arguments: Any) -> tuple[Turn, State]:
        """Take one step of the current episode: `call`, `write` or `stop`."""
        return getattr(self._episodes, method)(*arguments), self._state()

    def has(self, task: str) -> bool:
        """Return whether a task exists."""
        return self._episodes.has(task)

    def trajectory(self) -> Trajectory:
        """Return the record of the current episode so far."""
        return self._episodes.current.trajectory

    def end(self) -> None:
        """End the current episode without a grade, unless it has ended."""
        self._episodes.current.close()

    def restart_order(self) -> None:
        """Begin again with the first task of an order."""
        self._episodes.restart_order()

    def close(self) -> None:
        """Close the sandbox and the task."""
        self._episodes.close()

    def _state(self) -> State:
        episode = self._episodes.current
        return State(
            episode.task_id,
            episode.system,
            episode.prompt,
            episode.tools,
            episode.steps_left,
            episode.seconds_left,
            episode.outcome,
            episode.skipped,
        )


@dataclass(slots=True)
class RemoteEpisode:
    """The current episode, as its node last showed it."""

    state: State
    episodes: RemoteEpisodes

    def __getattr__(self, name: str) -> Any:
        if name in State._fields:
            return getattr(self.state, name)
        raise AttributeError(name)

    @property
    def trajectory(self) -> Trajectory:
        """The record of the episode so far."""
        trajectory: Trajectory = self.episodes.session.call("trajectory")
        return trajectory

    def close(self) -> None:
        """End the episode without a grade, unless it has ended."""
        self.episodes.session.call("end")


class RemoteEpisodes:
    """The same as Episodes, on a node of a cluster."""

    def __init__(self, address: str, tasks: TaskSource, settings: EnvironmentSettings) -> None:
        """Check the settings here; raises SettingsError for an invalid one, or if there is no cluster."""
        Episodes(tasks, settings).close()
        from harness.executors.ray_session import RaySession

        self.session = RaySession(address, partial(HostedEpisodes, tasks, settings))
        self._current: RemoteEpisode | None = None
        self._closed = False

    @property
    def current(self) -> RemoteEpisode:
        """The current episode; raises ActionError before the first one."""
        if self._current is None:
            raise ActionError("the environment is closed" if self._closed else "there is no episode; call reset first")
        return self._current

    def has(self, task: str) -> bool:
        """Return whether a task exists."""
        found: bool = self.session.call("has", task)
        return found

    def begin(self, *, seed: int | None = None, task: str = "") -> RemoteEpisode:
        """Begin an episode; see Episodes."""
        if self._closed:
            raise ActionError("the environment is closed")
        self._current = RemoteEpisode(self.session.call("begin", seed, task), self)
        return self._current

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Turn:
        """Call a tool in the current episode."""
        return self._turn("call", tool, dict(arguments))

    def write(self, text: str) -> Turn:
        """Take one step of the current episode with a reply in plain text."""
        return self._turn("write", text)

    def stop(self, detail: str, reason: ExitReason = ExitReason.STEP_LIMIT) -> Turn:
        """End the current episode as a limit does."""
        return self._turn("stop", detail, reason)

    def _turn(self, method: str, *arguments: Any) -> Turn:
        current = self.current
        turn: Turn
        turn, current.state = self.session.call("turn", method, *arguments)
        return turn

    def restart_order(self) -> None:
        """Begin again with the first task of an order."""
        self.session.call("restart_order")

    def close(self) -> None:
        """Close the sandbox, and release the slot; idempotent."""
        if not self._closed:
            self._closed, self._current = True, None
            # A node that is gone has closed its sandbox.
            with contextlib.suppress(SandboxError):
                self.session.call("close")
            self.session.close()


def is_local() -> bool:
    """Return whether episodes are played on this machine."""
    return not is_remote(os.environ.get(EXECUTOR, ""))


def together(work: Callable[[_A], _R], items: Sequence[_A]) -> list[_R]:
    """Call a function, which waits for a sandbox, with each item; return the results in the order of the items.

    As many calls run at the same time as this machine can run sandboxes, shared with the other processes of a training;
    on a cluster, all of them.
    """
    if not items:
        return []
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    jobs = max(1, measured_slots() // processes) if is_local() else len(items)
    with workers(min(len(items), jobs)) as pool:
        return list(pool.map(work, items))


def open_episodes(tasks: TaskSource, settings: EnvironmentSettings) -> Episodes:
    """Return episodes of this process, or, if `SSR_EXECUTOR` names a cluster, in a sandbox slot of its nodes.

    The project, the store and the dataset of the tasks have to be at the same paths there. Raises MissingExtraError
    without Ray, SettingsError for invalid settings or if there is no cluster.
    """
    if is_local():
        return Episodes(tasks, settings)
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise MissingExtraError("Ray", "ray")
    # They have the same methods, and their episodes the same attributes.
    return cast(Episodes, RemoteEpisodes(os.environ[EXECUTOR].removeprefix(_SCHEME), tasks, settings))
