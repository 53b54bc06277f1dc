"""The environments as an agent loop of verl: it generates token ids, and the fenced block in a reply is a tool call.

Name it in the file of `actor_rollout_ref.rollout.agent.agent_loop_config_path`, with the fields of `PoolSettings`, and
make the data set with `task_rows`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from harness.environments.adapters.pool import PoolSettings, pool_of
from harness.environments.adapters.transcript import ChatTokens, Transcript
from harness.environments.episode import Turn
from harness.environments.episodes import Episodes
from harness.environments.task import TaskSource
from harness.exporters.rl import VERL_AGENT, verl_row
from pytest_ssr.errors import ModelError, SettingsError

_NAMES = frozenset(item.name for item in fields(PoolSettings))
_ABORTED = ("abort", "aborted")
"""The stop reasons of SGLang and vLLM for a request that was aborted."""


def task_rows(tasks: TaskSource) -> list[dict[str, Any]]:
    """Return a row for each task; the episode describes it, so the prompt is only its id."""
    opened = tasks.open()
    try:
        return [verl_row(task_id) for task_id in opened.ids]
    finally:
        opened.close()


@dataclass(slots=True)
class _Response:
    """The tokens after the prompt; those of observations have the mask 0."""

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    has_logprobs: bool = True
    turns: list[Turn] = field(default_factory=list)
    metrics: AgentLoopMetrics = field(default_factory=lambda: AgentLoopMetrics(num_preempted=0))
    versions: dict[str, Any] = field(default_factory=dict)
    """The first and the last version of the weights that replied, as verl's trainers count them."""

    def observe(self, ids: list[int]) -> None:
        """Append tokens that the model has not written."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def reply(self, output: Any, room: int) -> list[int]:
        """Append the engine's reply as far as there is room, and return its tokens; raises ModelError without one."""
        if output.stop_reason in _ABORTED or not output.token_ids:
            raise ModelError(f"the engine has ended a reply: {output.stop_reason}")
        ids = list(output.token_ids)[:room]
        self.ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += list(output.log_probs or [0.0] * len(ids))[:room]
        self.has_logprobs = self.has_logprobs and bool(output.log_probs)
        self.metrics.num_preempted += output.num_preempted or 0
        self.versions.setdefault("min_global_steps", output.extra_fields.get("min_global_steps"))
        self.versions["max_global_steps"] = output.extra_fields.get("max_global_steps")
        return ids


@register(VERL_AGENT)
class SsrAgentLoop(AgentLoopBase):
    """Plays one episode for each row."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """kwargs: also the fields of `PoolSettings`; raises SettingsError for an invalid one."""
        settings = PoolSettings.read({name: value for name, value in kwargs.items() if name in _NAMES})
        super().__init__(*args, **{name: value for name, value in kwargs.items() if name not in _NAMES})
        self._pool = pool_of(settings)
        self._chat = ChatTokens(self.tokenizer, self.apply_chat_template_kwargs)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Return the tokens and the reward of an episode.

        An episode without a grade is played again, because every row of verl's batch has a reward. Raises SandboxError
        after too many of them in a row.
        """
        task = str(kwargs["extra_info"]["task"])
        while True:
            output = await self._pool.play(task, lambda episodes: self._play(episodes, task, sampling_params))
            if output is not None:
                return output

    async def _play(self, episodes: Episodes, task: str, sampling: Mapping[str, Any]) -> AgentLoopOutput:
        episode = await self._pool.run(episodes.begin, task=task)
        try:
            transcript = Transcript(self._chat, episode.system, episode.prompt)
            response = _Response(transcript.next_prompt().ids)
            self._require_fitting(task, response.prompt_ids)
            request = uuid.uuid4().hex
            while episode.outcome is None:
                response.turns.append(await self._turn(episodes, transcript, response, request, sampling))
        finally:
            await self._pool.run(episode.close)
        return _output(response)

    def _require_fitting(self, task: str, prompt_ids: list[int]) -> None:
        longest = self.rollout_config.prompt_length
        if len(prompt_ids) > longest:
            raise SettingsError(
                f"the prompt of the task {task} has {len(prompt_ids)} tokens, and data.max_prompt_length is {longest}"
            )

    async def _turn(
        self,
        episodes: Episodes,
        transcript: Transcript,
        response: _Response,
        request: str,
        sampling: Mapping[str, Any],
    ) -> Turn:
        room = self.rollout_config.response_length - len(response.ids)
        observed = transcript.next_prompt().ids if response.turns else []
        # The reward belongs to the last token, which has to be one of the model's.
        if len(observed) >= room:
            return await self._pool.run(episodes.stop, "the response is full")
        response.observe(observed)
        room -= len(observed)
        begun = time.monotonic()
        output = await self.server_manager.generate(
            request_id=request,
            prompt_ids=response.prompt_ids + response.ids,
            sampling_params={**sampling, "max_tokens": room},
        )
        replied = time.monotonic()
        ids = response.reply(output, room)
        turn = await self._pool.run(episodes.write, transcript.add_reply(ids))
        response.metrics.generate_sequences += replied - begun
        response.metrics.tool_calls += time.monotonic() - replied
        if turn.outcome is None:
            transcript.add_observation(turn.output)
        return turn


def _output(response: _Response) -> AgentLoopOutput:
    """Return what verl takes; raises SandboxError if the episode has no reward."""
    outcome = response.turns[-1].outcome
    success = outcome is not None and outcome.success is True
    return AgentLoopOutput(
        prompt_ids=response.prompt_ids,
        response_ids=response.ids,
        response_mask=response.mask,
        response_logprobs=response.logprobs if response.has_logprobs else None,
        reward_score=sum(turn.known_reward() for turn in response.turns),
        num_turns=2 * len(response.turns),
        metrics=response.metrics,
        extra_fields={
            **response.versions,
            "turn_scores": [],
            "tool_rewards": [],
            "reward_extra_info": {"success": float(success), "steps": len(response.turns)},
        },
    )
