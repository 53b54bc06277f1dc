"""A recorded rollout as a model, a window and tools: it happens again, without a model's server and without a sandbox.

What the loop makes of it is compared with the recording at each place; what differs is an error that names the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.agents.context import Prompt
from harness.agents.desk import Desk
from harness.agents.loop import EndOfRollout
from harness.agents.tools.protocol import Observation
from harness.messages import Message, Reply, Sampling
from harness.models.protocol import ToolSchema
from harness.trajectory import ExitReason, Step, Trajectory
from pytest_ssr.errors import ModelError


class Recording:
    """Replies, prompts and observations of a trajectory, in their order."""

    samples = True
    context_tokens = 2**31

    def __init__(self, trajectory: Trajectory) -> None:
        self._played = trajectory
        self.name = trajectory.model
        self._call = self._step = 0

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return what was sent at this place: how many tokens that was is known to its server alone.

        Where the recording has no more calls, its rollout ends here as it did.
        """
        played = self._played
        if self._call >= len(played.calls):
            if played.exit_reason is ExitReason.SUBMITTED:
                raise ModelError("the recording has handed in at another place")
            raise EndOfRollout(played.exit_reason, played.detail, dict(played.result))
        sent = played.calls[self._call].sent
        for place, (was, now) in enumerate(zip(played.messages, messages, strict=False)):
            if was != now:
                raise ModelError(f"message {place} is another than in the recording")
        return Prompt(tuple(messages[p] if isinstance(p, int) else Message.from_json(p) for p in sent), sent)

    def tighten(self) -> None:
        """Nothing is counted here."""

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the next reply."""
        call = self._played.calls[self._call]
        self._call += 1
        return Reply(
            self._played.messages[call.assistant_index],
            call.finish_reason,
            call.usage,
            call.cost_usd,
            call.latency_s,
            call.request_id,
            call.prompt_ids,
            call.token_ids,
            call.logprobs,
        )

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return 1: the prompts are the recording's."""
        return 1

    def session(self, rollout: str) -> Recording:
        """Return itself: a recording is of one rollout."""
        return self

    def close(self) -> None:
        """Nothing is held."""

    def tools(self) -> list[RecordedTool]:
        """Return the tools of the recording; using one shows what was seen then."""
        return [RecordedTool(told["function"], self) for told in self._played.tools]

    def observed(self, name: str) -> Observation:
        """Return the next observation; raises ModelError where another tool was used there."""
        while self._step < len(self._played.steps) and self._played.steps[self._step].kind == "format-error":
            self._step += 1
        step = self._played.steps[self._step] if self._step < len(self._played.steps) else None
        if step is None or step.tool != name:
            raise ModelError(f"the recording did not use {name} at step {self._step}")
        self._step += 1
        return self._observation(step)

    def _observation(self, step: Step) -> Observation:
        text = self._played.messages[step.observation_index].content
        done = step.kind == "submit"
        result = dict(self._played.result) if done else {}
        return Observation(text, step.exit_code, step.limit, step.seconds, step.elided_chars, done, result)


class RecordedTool:
    """One tool of a recording."""

    def __init__(self, told: Mapping[str, Any], recording: Recording) -> None:
        self.name, self.description = str(told["name"]), str(told["description"])
        self.parameters: Mapping[str, Any] = told["parameters"]
        self._recording = recording

    def use(self, arguments: Mapping[str, Any], desk: Desk) -> Observation:
        """Show what was seen then."""
        return self._recording.observed(self.name)
