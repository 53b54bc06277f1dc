"""The environments as an OpenEnv server and its client.

`uvicorn.run(create_server(StoreTasks(PROJECT)), port=8000)` serves them, and
`SsrClient(base_url="http://localhost:8000").sync()` steps through one; each client has episodes of its own.
"""

from __future__ import annotations

import functools
from typing import Any

from fastapi import FastAPI
from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from pydantic import Field

from harness.environments.episode import Turn
from harness.environments.episodes import EnvironmentSettings
from harness.environments.remote_episodes import open_episodes
from harness.environments.task import TaskSource


class SsrAction(Action):
    """A call of one of the tools in the first observation's metadata."""

    tool: str = "bash"
    arguments: dict[str, Any] = Field(default_factory=dict)


class SsrObservation(Observation):
    """What a step shows; the reward is None if the sandbox failed and there is no grade."""

    output: str = ""
    diff: str = ""
    steps_left: int = 0
    seconds_left: float = 0.0


class SsrEnvironment(Environment[SsrAction, SsrObservation, State]):
    """The episodes of one client."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: TaskSource, settings: EnvironmentSettings) -> None:
        super().__init__()
        self._episodes = open_episodes(tasks, settings)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = "", **options: Any
    ) -> SsrObservation:
        """Begin an episode. task: the id of the task; by default the order chooses."""
        episode = self._episodes.begin(seed=seed, task=task)
        metadata = {"task": episode.task_id, "system": episode.system, "tools": episode.tools}
        return SsrObservation(
            output=episode.prompt,
            steps_left=episode.steps_left,
            seconds_left=episode.seconds_left,
            metadata=metadata,
        )

    def step(self, action: SsrAction, timeout_s: float | None = None, **options: Any) -> SsrObservation:
        """Call a tool; the limits of the settings hold, whatever timeout_s is."""
        turn = self._episodes.call(action.tool, action.arguments)
        episode = self._episodes.current
        return SsrObservation(
            output=turn.output,
            diff=turn.diff,
            steps_left=episode.steps_left,
            seconds_left=episode.seconds_left,
            done=turn.outcome is not None,
            reward=turn.reward,
            metadata=_metadata(turn),
        )

    @property
    def state(self) -> State:
        """The id of the current rollout and the number of its steps."""
        trajectory = self._episodes.current.trajectory
        return State(episode_id=trajectory.rollout_id, step_count=len(trajectory.calls))

    def close(self) -> None:
        """Close the sandbox and the task; idempotent."""
        self._episodes.close()


class SsrClient(EnvClient[SsrAction, SsrObservation, State]):
    """A client of such a server."""

    def _step_payload(self, action: SsrAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SsrObservation]:
        result = {"reward": payload.get("reward"), "done": payload.get("done", False)}
        metadata = payload.get("metadata") or payload["observation"].get("metadata") or {}
        observation = SsrObservation(**{**payload["observation"], **result, "metadata": metadata})
        return StepResult(observation=observation, metadata=metadata, **result)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


def create_server(
    tasks: TaskSource, settings: EnvironmentSettings = EnvironmentSettings(), *, sessions: int = 1
) -> FastAPI:
    """Return the server's application. sessions: the largest number of clients at the same time."""
    make = functools.partial(SsrEnvironment, tasks, settings)
    return create_fastapi_app(make, SsrAction, SsrObservation, max_concurrent_envs=sessions, env_name="ssr")


def _metadata(turn: Turn) -> dict[str, Any]:
    if turn.outcome is None:
        return {"scores": dict(turn.scores)}
    return {"scores": dict(turn.scores), "success": turn.outcome.success, "code": turn.outcome.code}
