"""The environments as a taskset and an environment of verifiers (its interface `v1`).

Verifiers finds both by the name of a top-level module. Write one, such as `ssr_bugs.py`, with the lines
`from harness.environments.adapters.verifiers import SsrEnv, SsrTaskset` and `__all__ = ["SsrEnv", "SsrTaskset"]`; its
name is the id of the taskset. The player is any harness of verifiers that answers in text, by default `null`, and a
fenced block in its reply is a tool call, which runs in our sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import verifiers.v1 as vf

from harness.agents.limits import RolloutLimits
from harness.environments.episode import Turn
from harness.environments.episodes import EnvironmentSettings
from harness.environments.remote_episodes import open_episodes
from harness.environments.solve_tasks import StoreTasks
from harness.environments.task import TaskSource

__all__ = ["SsrEnv", "SsrTaskset"]


class SsrTasksetConfig(vf.TasksetConfig):
    """The options of the bugs of a store."""

    project: str = ""
    """The project's folder."""
    store: str = ""
    """The store; by default `.ssr` in the project."""
    artifacts: list[str] = []  # noqa: RUF012 - pydantic copies it
    """Ids of artifacts; by default all of the store."""
    sandbox: str = "auto"
    """The name of the sandbox."""
    python: str = ""
    """The interpreter that runs the project's tests."""
    steps: int = RolloutLimits().steps
    """The largest number of replies."""


class SsrTask(vf.Task[vf.TaskData]):
    """A bug to repair; its prompt is known when its episode begins."""


class SsrTaskset(vf.Taskset[SsrTask, SsrTasksetConfig]):
    """The bugs of a store. Override `source` for tasks of another kind."""

    def source(self) -> TaskSource:
        """Return where the tasks come from."""
        config = self.config
        return StoreTasks(
            config.project,
            config.store,
            artifacts=tuple(config.artifacts),
            sandbox=config.sandbox,
            python=config.python or None,
        )

    def settings(self) -> EnvironmentSettings:
        """Return the settings of the episodes."""
        return EnvironmentSettings(limits=RolloutLimits(steps=self.config.steps))

    def load(self) -> Iterator[SsrTask]:
        """Yield a task for each id."""
        opened = self.source().open()
        try:
            for task_id in opened.ids:
                yield SsrTask(vf.TaskData(id=task_id, name=task_id, prompt=None), self.config.task)
        finally:
            opened.close()


class SsrEnvConfig(vf.EnvConfig):
    """The one agent."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())


class SsrEnv(vf.Env[SsrEnvConfig]):
    """Plays the user of an agent: its replies are steps, and their outputs the next turns."""

    async def run(self, task: SsrTask, agents: vf.Agents) -> None:
        """Run one episode; raises SandboxError if it has no reward."""
        episodes = open_episodes(self.taskset.source(), self.taskset.settings())
        try:
            episode = await asyncio.to_thread(episodes.begin, task=task.data.id)
            async with agents.player.interaction(task) as interaction:
                message, turns = f"{episode.system}\n\n{episode.prompt}", list[Turn]()
                while episode.outcome is None:
                    segment = await interaction.turn(message)
                    if segment.terminated:
                        turn = await asyncio.to_thread(episodes.stop, "the agent has ended")
                    else:
                        turn = await asyncio.to_thread(episodes.write, segment.last_reply)
                    turns.append(turn)
                    message = turn.output
            interaction.trace.record_reward("ssr", sum(turn.known_reward() for turn in turns))
            interaction.trace.record_metric("success", float(episode.outcome.success is True))
        finally:
            await asyncio.to_thread(episodes.close)
