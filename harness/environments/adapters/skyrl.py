"""The environments as a SkyRL-gym environment: the policy writes text, and its fenced block is a tool call.

Register it in the process that generates rollouts:
`skyrl_gym.register("ssr", SkyRLEnvironment, kwargs={"tasks": StoreTasks(PROJECT)})`. A row's field `task` names its
task, so that all rollouts of a group attempt the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from harness.environments.episodes import EnvironmentSettings
from harness.environments.remote_episodes import open_episodes
from harness.environments.task import TaskSource
from harness.records.messages import SYSTEM, USER


class SkyRLEnvironment(BaseTextEnv):
    """Episodes with a policy of SkyRL."""

    def __init__(
        self,
        env_config: object = None,
        extras: Mapping[str, Any] | None = None,
        *,
        tasks: TaskSource,
        settings: EnvironmentSettings = EnvironmentSettings(),
    ) -> None:
        """env_config: not used. extras: the row of the dataset."""
        super().__init__()
        self.max_turns = settings.limits.steps
        self._task, self._seed = str((extras or {}).get("task", "")), int((extras or {}).get("seed", 0))
        self._episodes = open_episodes(tasks, settings)
        self._metrics: dict[str, Any] = {}

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begin an episode and return its first messages, which replace those of the dataset."""
        episode = self._episodes.begin(seed=self._seed, task=self._task)
        self.turns = 0
        messages = [{"role": SYSTEM, "content": episode.system}, {"role": USER, "content": episode.prompt}]
        return messages, {"task": episode.task_id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Execute the action in a reply; raises SandboxError at the end of an episode that has no grade."""
        self.turns += 1
        turn = self._episodes.write(action)
        reward = turn.known_reward()
        metadata: dict[str, Any] = {"scores": dict(turn.scores)}
        if turn.outcome is None:
            observations = [{"role": USER, "content": turn.output}]
            return BaseTextEnvStepOutput(observations=observations, reward=reward, done=False, metadata=metadata)
        self._metrics = {"success": float(turn.outcome.success is True), "steps": self.turns}
        metadata |= {"success": turn.outcome.success, "code": turn.outcome.code}
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=metadata)

    def get_metrics(self) -> dict[str, Any]:
        """Return whether the last episode was a success, and its steps."""
        return self._metrics

    def close(self) -> None:
        """Close the sandbox and the task; idempotent."""
        self._episodes.close()
