"""Replay a recorded rollout as a model, a window and tools, without a model server and without a sandbox.

The replayed rollout is compared with the recording at each step; the first difference is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from harness.agents.context import Prompt
from harness.agents.tools.protocol import Observation
from harness.agents.turns import EndOfRollout
from harness.agents.workspace import Workspace
from harness.models.protocol import ToolSchema
from harness.records.messages import Message, Reply, Sampling
from harness.records.trajectory import ExitReason, Trajectory
from pytest_ssr.errors import ModelError
from pytest_ssr.records.decoding import decode


class Recording:
    """Replies, prompts and observations of a trajectory, in their order."""

    context_tokens = 2**31

    def __init__(self, recorded: Trajectory, now: Trajectory) -> None:
        """recorded: the recording. now: the rollout that repeats it, as far as it has progressed."""
        self._recorded, self._now = recorded, now
        self.name = recorded.model

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return the recorded prompt of this call, because only the server knew how many tokens it had.

        If the recording has no more calls, end the rollout as it ended.
        """
        index = len(self._now.calls)
        if index >= len(self._recorded.calls):
            self._end()
        self.require_same(messages=len(messages))
        sent = self._recorded.calls[index].sent
        return Prompt(tuple(messages[p] if isinstance(p, int) else decode(Message, p) for p in sent), sent)

    def tighten(self, refused: Prompt, room: int = 0) -> None:
        """Do nothing: the prompts are recorded."""

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the recorded reply of this call."""
        call = self._recorded.calls[len(self._now.calls)]
        return Reply(
            self._recorded.messages[call.assistant_index],
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
        """Return 1: the prompts are recorded, so nothing depends on the count."""
        return 1

    def session(self, rollout: str) -> Recording:
        """Return this model: a recording belongs to one rollout."""
        return self

    def close(self) -> None:
        """Do nothing: the model holds no resources."""

    def tools(self) -> list[RecordedTool]:
        """Return the tools of the recording, which return the recorded observations."""
        return [RecordedTool(tool["function"], self) for tool in self._recorded.tools]

    def observed(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Return the recorded observation of this step; raises ModelError if the call differs from the recorded one.

        If the recording has no more steps, it was truncated here, and the rollout ends as it ended.
        """
        index = len(self._now.steps)
        if index >= len(self._recorded.steps):
            self._end()
        step = self._recorded.steps[index]
        if (step.tool, dict(step.arguments)) != (name, dict(arguments)):
            raise ModelError(f"step {index} of the recording is not this call of {name}")
        text = self._recorded.messages[step.observation_index].content
        done = step.kind == "submit"
        result = dict(self._recorded.result) if done else {}
        return Observation(text, step.exit_code, step.limit, step.seconds, step.elided_chars, done, result)

    def require_same(self, *, messages: int | None = None) -> None:
        """Raise ModelError at the first message, call or step that differs from the recording.

        messages: the number of messages so far; None if the rollout is complete.
        """
        now, recorded = self._now, self._recorded
        for kind, ours, theirs in (
            ("message", now.messages, recorded.messages[:messages]),
            ("call", now.calls, recorded.calls[: None if messages is None else len(now.calls)]),
            ("step", now.steps, recorded.steps[: None if messages is None else len(now.steps)]),
        ):
            for index, (current, expected) in enumerate(zip_longest(ours, theirs)):
                if current != expected:
                    raise ModelError(f"{kind} {index} differs from the recording")

    def _end(self) -> None:
        recorded = self._recorded
        if recorded.exit_reason is ExitReason.SUBMITTED:
            raise ModelError("the recording submitted at another step")
        raise EndOfRollout(recorded.exit_reason, recorded.detail, dict(recorded.result))


class RecordedTool:
    """One tool of a recording."""

    def __init__(self, schema: Mapping[str, Any], recording: Recording) -> None:
        self.name, self.description = str(schema["name"]), str(schema["description"])
        self.parameters: Mapping[str, Any] = schema["parameters"]
        self._recording = recording

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Return the recorded observation."""
        return self._recording.observed(self.name, arguments)
