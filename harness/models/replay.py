"""A recorded rollout as a model, a window and tools: it happens again, without a model's server and without a sandbox.

What the loop makes of it is compared with the recording at each place; what differs is an error that names the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from harness.agents.context import Prompt
from harness.agents.desk import Desk
from harness.agents.loop import EndOfRollout
from harness.agents.tools.protocol import Observation
from harness.messages import Message, Reply, Sampling
from harness.models.protocol import ToolSchema
from harness.trajectory import ExitReason, Trajectory
from pytest_ssr.errors import ModelError


class Recording:
    """Replies, prompts and observations of a trajectory, in their order."""

    context_tokens = 2**31

    def __init__(self, played: Trajectory, now: Trajectory) -> None:
        """played: the recording. now: the rollout that repeats it, as far as it is."""
        self._played, self._now = played, now
        self.name = played.model

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return what was sent at this place: how many tokens that was is known to its server alone.

        Where the recording has no more calls, its rollout ends here as it did.
        """
        place = len(self._now.calls)
        if place >= len(self._played.calls):
            self._end()
        self.require_same(messages=len(messages))
        sent = self._played.calls[place].sent
        return Prompt(tuple(messages[p] if isinstance(p, int) else Message.from_json(p) for p in sent), sent)

    def tighten(self) -> None:
        """Nothing is counted here."""

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the next reply."""
        call = self._played.calls[len(self._now.calls)]
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
            call.trainable,
            call.cached,
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

    def observed(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Return the observation of this step; raises ModelError where something else was done at it.

        Where the recording has no more steps, it was cut off here, and its rollout ends as it did.
        """
        place = len(self._now.steps)
        if place >= len(self._played.steps):
            self._end()
        step = self._played.steps[place]
        if (step.tool, dict(step.arguments)) != (name, dict(arguments)):
            raise ModelError(f"step {place} of the recording is another call than {name}")
        text = self._played.messages[step.observation_index].content
        done = step.kind == "submit"
        result = dict(self._played.result) if done else {}
        return Observation(text, step.exit_code, step.limit, step.seconds, step.elided_chars, done, result)

    def require_same(self, *, messages: int | None = None) -> None:
        """Raise ModelError at the first message, call or step that is another than in the recording.

        messages: how many there are by now; None: the rollout has come to its end, and all are there.
        """
        now, played = self._now, self._played
        for kind, ours, theirs in (
            ("message", now.messages, played.messages[:messages]),
            ("call", now.calls, played.calls[: None if messages is None else len(now.calls)]),
            ("step", now.steps, played.steps[: None if messages is None else len(now.steps)]),
        ):
            for place, (is_now, was) in enumerate(zip_longest(ours, theirs)):
                if is_now != was:
                    raise ModelError(f"{kind} {place} is another than in the recording")

    def _end(self) -> None:
        played = self._played
        if played.exit_reason is ExitReason.SUBMITTED:
            raise ModelError("the recording has handed in at another place")
        raise EndOfRollout(played.exit_reason, played.detail, dict(played.result))


class RecordedTool:
    """One tool of a recording."""

    def __init__(self, told: Mapping[str, Any], recording: Recording) -> None:
        self.name, self.description = str(told["name"]), str(told["description"])
        self.parameters: Mapping[str, Any] = told["parameters"]
        self._recording = recording

    def use(self, arguments: Mapping[str, Any], desk: Desk) -> Observation:
        """Show what was seen then."""
        return self._recording.observed(self.name, arguments)
