"""The adapter for SkyRL-gym, made and stepped through by the real package."""

from __future__ import annotations

import pytest
import skyrl_gym
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT

from harness.environments import StoreTasks
from harness.environments.adapters.skyrl import SkyRLEnvironment
from harness.exporters.rl import skyrl_row
from pytest_ssr.errors import SandboxError


def test_replies_are_steps_and_the_grade_is_the_reward(proven: Proven) -> None:
    tasks = StoreTasks(proven.project, proven.store.root, python=plain_python())
    # Further columns of a row are extras, as SkyRL's generator gives them.
    extras = skyrl_row(proven.verdict.artifact_id)
    prompt, env_class = extras.pop("prompt"), extras.pop("env_class")
    skyrl_gym.register(env_class, SkyRLEnvironment, kwargs={"tasks": tasks})
    for command, reward in ((FIX, 1.0), (NO_FIX, -1.0)):
        env = skyrl_gym.make(env_class, env_config={}, extras=extras)
        messages, info = env.init(prompt)
        assert [message["role"] for message in messages] == ["system", "user"]
        assert info["task"] == proven.verdict.artifact_id
        step = env.step("no tool")
        assert (step["reward"], step["done"]) == (0.0, False)
        assert "bash" in step["observations"][0]["content"]
        assert not env.step(command)["done"]
        step = env.step(SUBMIT)
        assert (step["reward"], step["done"], step["metadata"]["success"]) == (reward, True, reward > 0)
        assert type(env).aggregate_metrics([env.get_metrics()])["success"] == (reward > 0)
        env.close()
        env.close()


@pytest.mark.usefixtures("ungraded")
def test_an_episode_without_a_grade_has_no_reward(proven: Proven) -> None:
    env = SkyRLEnvironment(tasks=StoreTasks(proven.project, proven.store.root, python=plain_python()))
    env.init([{"role": "user", "content": ""}])
    env.step(FIX)
    with pytest.raises(SandboxError):
        env.step(SUBMIT)
    env.close()
