"""Take the turns of a rollout: record a reply, execute its actions, and record the observations.

The replies come from a model that the loop queries, or from a policy that steps through an environment.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from harness.agents.context import elided
from harness.agents.limits import RolloutLimits
from harness.agents.tools.in_text import calls_in
from harness.agents.tools.protocol import Observation, Tool, argument_problem
from harness.agents.workspace import Workspace
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Reply, ToolCall
from harness.records.trajectory import ExitReason, Journal, ModelCall, Sent, Step
from pytest_ssr.errors import SsrError

_LONGEST_CYCLE = 3
_MIN_COMMAND_S = 1.0


class FormatError(SsrError):
    """A reply without a valid tool call; the message is for the model."""


def actions_of(message: Message, tools: Collection[str], *, number: int) -> tuple[ToolCall, ...]:
    """Return the tool calls of a reply; raises FormatError if it has none, or none that can be used."""
    if message.tool_calls:
        return message.tool_calls
    calls = calls_in(message.content, tools)
    if len(calls) != 1:
        problem = "no tool was called" if not calls else f"there are {len(calls)} blocks in one reply"
        raise FormatError(
            f"{problem}; call one of the tools {', '.join(sorted(tools))}, or write exactly one block: "
            "<execute>COMMAND</execute>, or one that begins with ``` and the name of a tool"
        )
    name, raw = calls[0]
    return (ToolCall.parse(f"text-{number}", name, raw),)


class EndOfRollout(SsrError):  # noqa: N818 - it is not an error
    """Raised to end a rollout with a reason."""

    def __init__(self, reason: ExitReason, detail: str = "", result: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.result = reason, detail, result


class Turns:
    """The turns of one rollout, with its tools, its limits and its record."""

    def __init__(
        self,
        tools: Sequence[Tool],
        limits: RolloutLimits,
        workspace: Workspace,
        journal: Journal,
        *,
        observe_as: str = TOOL,
        reply_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
        submitted: Callable[[], Mapping[str, object] | None] = lambda: None,
    ) -> None:
        """Start the clock of the rollout.

        observe_as: the role of observations for actions written as text. reply_tokens: the length of the longest
        reply, which the message about a reply that was cut off gives. submitted: returns the result of an earlier
        submission; after it, a reply that calls no tool ends the rollout.
        """
        self._limits, self._journal, self._observe_as = limits, journal, observe_as
        self._workspace = replace(workspace, limits=replace(workspace.limits, wall_s=limits.command_s))
        self._tools = {tool.name: tool for tool in tools}
        self._reply_tokens = reply_tokens
        self._clock, self._submitted = clock, submitted
        self._begin = clock()
        self._waited_s = 0.0
        self._malformed = 0
        self._last: deque[tuple[str, str, str]] = deque(maxlen=_LONGEST_CYCLE * limits.repeats)

    def begin(self, system: str, task: str) -> None:
        """Record the first messages. system: empty without a system prompt."""
        if system:
            self._journal.message(Message(SYSTEM, system))
        self._journal.message(Message(USER, task))

    @property
    def steps_left(self) -> int:
        """The number of replies until the limit."""
        return max(0, self._limits.steps - len(self._journal.trajectory.calls))

    @property
    def seconds_left(self) -> float:
        """The seconds until the limit; negative after it."""
        return self._limits.wall_s - (self._clock() - self._begin - self._waited_s)

    def wait(self, seconds: float) -> None:
        """Leave this many seconds that have passed out of the rollout's time."""
        self._waited_s += max(0.0, seconds)

    def require_within_limits(self) -> None:
        """Raise EndOfRollout if the rollout has reached a limit."""
        limits, done = self._limits, self._journal.trajectory
        usage = done.usage
        if not self.steps_left:
            raise EndOfRollout(ExitReason.STEP_LIMIT, f"{limits.steps} replies")
        if self.seconds_left <= 0:
            raise EndOfRollout(ExitReason.TIME_LIMIT, f"{limits.wall_s:g} s")
        if usage.prompt_tokens + usage.completion_tokens >= limits.tokens:
            raise EndOfRollout(ExitReason.TOKEN_LIMIT, f"{limits.tokens} tokens")
        if done.cost_usd >= limits.usd:
            raise EndOfRollout(ExitReason.COST_LIMIT, f"{limits.usd:g} USD")

    def take(self, reply: Reply, sent: Sequence[Sent]) -> None:
        """Record a reply to a prompt, and execute its actions; raises EndOfRollout if one of them ends the rollout.

        sent: the messages of the prompt.
        """
        index = self._journal.message(replace(reply.message, role=ASSISTANT))
        number = len(self._journal.trajectory.calls)
        self._journal.call(ModelCall.of(number, sent, index, reply))
        try:
            actions = actions_of(reply.message, self._tools, number=number)
        except FormatError as error:
            self._take_malformed(str(error), reply, number)
            return
        for action in actions:
            self._act(action, number, native=bool(reply.message.tool_calls))

    def _take_malformed(self, reason: str, reply: Reply, number: int) -> None:
        is_cut = reply.finish_reason == "length"
        if not is_cut and (result := self._submitted()) is not None:
            raise EndOfRollout(ExitReason.SUBMITTED, "", result)
        if is_cut:
            reason = f"the reply was cut off after {self._reply_tokens} tokens; be shorter"
        self._malformed += 1
        index = self._journal.message(Message(USER, reason))
        self._journal.step(Step(len(self._journal.trajectory.steps), number, "format-error", observation_index=index))
        if self._malformed >= self._limits.format_errors:
            raise EndOfRollout(ExitReason.FORMAT, f"{self._malformed} replies in a row called no tool")

    def _act(self, action: ToolCall, number: int, *, native: bool) -> None:
        observation = self._call_tool(action)
        # File names may contain lone surrogates, which no request can encode.
        whole = observation.text.encode("utf-8", "backslashreplace").decode()
        text, omitted = elided(whole, self._limits.output_chars)
        role = TOOL if native else self._observe_as
        index = self._journal.message(Message(role, text, tool_call_id=action.id if role == TOOL else ""))
        is_tool_call = action.name in self._tools and not action.fault
        kind = "tool" if is_tool_call else "format-error"
        if observation.done:
            kind = "submit"
        step = Step(
            id=len(self._journal.trajectory.steps),
            call=number,
            kind=kind,
            tool=action.name,
            arguments=action.arguments,
            observation_index=index,
            exit_code=observation.exit_code,
            limit=observation.limit,
            seconds=round(observation.seconds, 3),
            elided_chars=omitted + observation.elided_chars,
        )
        self._journal.step(step)
        if observation.done:
            raise EndOfRollout(ExitReason.SUBMITTED, "", dict(observation.result))
        self._check_progress(action, text, is_tool_call=is_tool_call)

    def _call_tool(self, action: ToolCall) -> Observation:
        tool = self._tools.get(action.name)
        if tool is None:
            return Observation(f"{action.name!r} is not a tool; the tools are {', '.join(self._tools)}", 1)
        if reason := action.fault or argument_problem(tool, action.arguments):
            return Observation(reason, 1)
        remaining = max(_MIN_COMMAND_S, min(self._limits.command_s, self.seconds_left))
        self._workspace.limits = replace(self._workspace.limits, wall_s=remaining)
        return tool.use(action.arguments, self._workspace)

    def _check_progress(self, action: ToolCall, text: str, *, is_tool_call: bool) -> None:
        """End a rollout without progress: invalid calls, or a cycle of calls with the same results."""
        limits = self._limits
        self._malformed = 0 if is_tool_call else self._malformed + 1
        if self._malformed >= limits.format_errors:
            raise EndOfRollout(ExitReason.FORMAT, f"{self._malformed} calls in a row were invalid")
        self._last.append((action.name, action.raw, text))
        for length in range(1, _LONGEST_CYCLE + 1):
            last = list(self._last)[-length * limits.repeats :]
            if len(last) == length * limits.repeats and len(set(last)) <= length:
                subject = f"{action.name} was called" if length == 1 else f"the same {length} calls were made"
                raise EndOfRollout(ExitReason.LOOP, f"{subject} {limits.repeats} times with the same result")
