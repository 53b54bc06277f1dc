"""The agent loop: query the model, execute the actions of its reply, and return the observations to it.

Every rollout ends with a reason and leaves a trajectory. A model that does not reply and a sandbox that breaks are
infrastructure failures: such a rollout is aborted and gets no grade.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from harness.agents.context import ContextWindow, Prompt, Window, elided
from harness.agents.limits import RolloutLimits
from harness.agents.tools.protocol import Observation, Tool, argument_problem, schema_of
from harness.agents.workspace import Workspace
from harness.models.budget import BudgetSpentError
from harness.models.protocol import Model
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Reply, Sampling, ToolCall
from harness.records.trajectory import ExitReason, Journal, ModelCall, Step, Trajectory, is_truncated
from pytest_ssr.errors import ContextError, ModelError, SandboxError, SettingsError, SsrError, describe_unexpected

_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w-]+)[ \t]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


class FormatError(SsrError):
    """A reply without a valid tool call; the message is for the model."""


def actions_of(message: Message, tools: Collection[str], *, number: int) -> tuple[ToolCall, ...]:
    """Return the tool calls of a reply; raises FormatError if it has none, or none that can be used."""
    if message.tool_calls:
        return message.tool_calls
    blocks = [(name, text) for _, name, text in _BLOCK.findall(message.content) if name in tools]
    if len(blocks) != 1:
        problem = "no tool was called" if not blocks else f"there are {len(blocks)} blocks in one reply"
        raise FormatError(
            f"{problem}; call one of the tools {', '.join(sorted(tools))}, or write exactly one block that begins "
            "with ``` and the name of a tool"
        )
    name, text = blocks[0]
    raw = json.dumps({"command": text.rstrip("\n")}) if name == "bash" else text
    return (ToolCall.parse(f"text-{number}", name, raw),)


_MAX_TIGHTENINGS = 6
_LONGEST_CYCLE = 3


class EndOfRollout(SsrError):  # noqa: N818 - it is not an error
    """Raised to end a rollout with a reason."""

    def __init__(self, reason: ExitReason, detail: str = "", result: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.result = reason, detail, result


@dataclass(frozen=True, slots=True)
class Agent:
    """A model with tools."""

    model: Model
    tools: Sequence[Tool]
    limits: RolloutLimits = RolloutLimits()
    sampling: Sampling = Sampling()
    observe_as: str = TOOL
    """The role of observations for actions written as text: `tool`, or `user` for servers that refuse `tool`."""
    window: Window | None = None
    """Selects the messages of each prompt; by default a `ContextWindow` that fits the model."""
    clock: Callable[[], float] = time.monotonic
    partial_result: Callable[[Workspace], Mapping[str, object]] = lambda _: {}
    """Returns the result of a rollout that a limit ended, from the state of its workspace."""

    def __post_init__(self) -> None:
        """Raise SettingsError for settings that allow no rollout."""
        if self.observe_as not in (TOOL, USER):
            raise SettingsError(f"the role of observations must be {TOOL} or {USER}, not {self.observe_as!r}")
        names = [tool.name for tool in self.tools]
        if duplicate := next((n for n in names if names.count(n) > 1), None):
            raise SettingsError(f"two tools have the name {duplicate!r}; rename one of them")

    def run(self, system: str, task: str, workspace: Workspace, journal: Journal) -> Trajectory:
        """Run the model until it submits or a limit ends the rollout.

        Ctrl-C and internal errors also close the record; see `record_end` for those that are raised again.
        """
        with record_end(journal):
            try:
                _Rollout(self, workspace, journal).go(system, task)
            except EndOfRollout as end:
                reason, detail, result = end.reason, end.detail, end.result
            except ContextError as error:
                reason, detail, result = ExitReason.CONTEXT, str(error), None
            if result is None and is_truncated(reason):
                result = self.partial_result(workspace)
            journal.end(reason, detail, result)
        return journal.trajectory


@contextlib.contextmanager
def record_end(journal: Journal) -> Iterator[None]:
    """Record the end of a rollout that an exception ends.

    A model that does not reply, a sandbox that breaks and an unexpected error are recorded and suppressed. Whatever
    ends the whole run is recorded and raised again: a spent budget, Ctrl-C, invalid settings.
    """
    try:
        yield
    except BudgetSpentError as error:
        journal.end(ExitReason.MODEL, str(error))
        raise
    except ModelError as error:
        journal.end(ExitReason.MODEL, str(error))
    except SandboxError as error:
        journal.end(ExitReason.INFRA, str(error))
    except Exception as error:
        if isinstance(error, SsrError):
            journal.end(ExitReason.INTERRUPTED, f"{type(error).__name__}: {error}")
            raise
        journal.end(ExitReason.INFRA, describe_unexpected(error))
    except BaseException as error:
        journal.end(ExitReason.INTERRUPTED, f"{type(error).__name__}: {error}")
        raise


class _Rollout:
    def __init__(self, agent: Agent, workspace: Workspace, journal: Journal) -> None:
        self._agent, self._journal = agent, journal
        self._workspace = replace(workspace, limits=replace(workspace.limits, wall_s=agent.limits.command_s))
        self._tools = {tool.name: tool for tool in agent.tools}
        self._schemas = [schema_of(tool) for tool in agent.tools]
        self._window = agent.window or ContextWindow(
            agent.model.context_tokens - agent.sampling.max_tokens,
            lambda m: agent.model.count(m, tools=self._schemas),
        )
        self._begin = agent.clock()
        self._waited_s = 0.0
        self._malformed = 0
        self._last: deque[tuple[str, str, str]] = deque(maxlen=_LONGEST_CYCLE * agent.limits.repeats)

    def go(self, system: str, task: str) -> NoReturn:
        """Alternate between the model and its actions until the rollout ends."""
        self._journal.message(Message(SYSTEM, system))
        self._journal.message(Message(USER, task))
        while True:
            self._require_within_limits()
            reply = self._reply()
            number = len(self._journal.trajectory.calls) - 1
            try:
                actions = actions_of(reply.message, self._tools, number=number)
            except FormatError as error:
                self._take_malformed(str(error), reply, number)
                continue
            for action in actions:
                self._act(action, number, native=bool(reply.message.tool_calls))

    def _require_within_limits(self) -> None:
        limits, done = self._agent.limits, self._journal.trajectory
        usage = done.usage
        if len(done.calls) >= limits.steps:
            raise EndOfRollout(ExitReason.STEP_LIMIT, f"{limits.steps} replies")
        if self._remaining_s() <= 0:
            raise EndOfRollout(ExitReason.TIME_LIMIT, f"{limits.wall_s:g} s")
        if usage.prompt_tokens + usage.completion_tokens >= limits.tokens:
            raise EndOfRollout(ExitReason.TOKEN_LIMIT, f"{limits.tokens} tokens")
        if done.cost_usd >= limits.usd:
            raise EndOfRollout(ExitReason.COST_LIMIT, f"{limits.usd:g} USD")

    def _remaining_s(self) -> float:
        return self._agent.limits.wall_s - (self._agent.clock() - self._begin - self._waited_s)

    def _reply(self) -> Reply:
        """Query the model; only the latency of its reply counts, not the time spent waiting for a busy server."""
        journal, clock = self._journal, self._agent.clock
        number = len(journal.trajectory.calls)
        begin = clock()
        prompt, reply = self._query(number)
        self._waited_s += max(0.0, clock() - begin - reply.latency_s)
        index = journal.message(replace(reply.message, role=ASSISTANT))
        journal.call(ModelCall.of(number, prompt.sent, index, reply))
        return reply

    def _query(self, number: int) -> tuple[Prompt, Reply]:
        """Return the prompt and the reply, with a shorter prompt if the server counts more tokens than the estimate."""
        model, sampling = self._agent.model, self._agent.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + number)
        refused: ContextError | None = None
        for _ in range(_MAX_TIGHTENINGS):
            try:
                prompt = self._window.prompt(self._journal.trajectory.messages)
            except ContextError:
                if refused is None:
                    raise
                break
            try:
                return prompt, model.reply(prompt.messages, tools=self._schemas, sampling=sampling)
            except ContextError as error:
                refused = error
                self._window.tighten()
        assert refused is not None
        raise refused if number else _first_prompt_refused(model, sampling, refused)

    def _take_malformed(self, reason: str, reply: Reply, number: int) -> None:
        if reply.finish_reason == "length":
            reason = f"the reply was cut off after {self._agent.sampling.max_tokens} tokens; be shorter"
        self._malformed += 1
        index = self._journal.message(Message(USER, reason))
        self._journal.step(Step(len(self._journal.trajectory.steps), number, "format-error", observation_index=index))
        if self._malformed >= self._agent.limits.format_errors:
            raise EndOfRollout(ExitReason.FORMAT, f"{self._malformed} replies in a row called no tool")

    def _act(self, action: ToolCall, number: int, *, native: bool) -> None:
        observation = self._call_tool(action)
        # File names may contain lone surrogates, which no request can encode.
        whole = observation.text.encode("utf-8", "backslashreplace").decode()
        text, omitted = elided(whole, self._agent.limits.output_chars)
        role = TOOL if native else self._agent.observe_as
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
        remaining = max(1.0, min(self._agent.limits.command_s, self._remaining_s()))
        self._workspace.limits = replace(self._workspace.limits, wall_s=remaining)
        return tool.use(action.arguments, self._workspace)

    def _check_progress(self, action: ToolCall, text: str, *, is_tool_call: bool) -> None:
        """End a rollout without progress: invalid calls, or a cycle of calls with the same results."""
        limits = self._agent.limits
        self._malformed = 0 if is_tool_call else self._malformed + 1
        if self._malformed >= limits.format_errors:
            raise EndOfRollout(ExitReason.FORMAT, f"{self._malformed} calls in a row were invalid")
        self._last.append((action.name, action.raw, text))
        for length in range(1, _LONGEST_CYCLE + 1):
            last = list(self._last)[-length * limits.repeats :]
            if len(last) == length * limits.repeats and len(set(last)) <= length:
                subject = f"{action.name} was called" if length == 1 else f"the same {length} calls were made"
                raise EndOfRollout(ExitReason.LOOP, f"{subject} {limits.repeats} times with the same result")


def _first_prompt_refused(model: Model, sampling: Sampling, error: ContextError) -> ModelError:
    """Return the error for a server that refuses a first prompt which should fit: it is not the solver's fault."""
    return ModelError(
        f"{model.name} refuses the first prompt of a rollout, which fits into {model.context_tokens} tokens with "
        f"{sampling.max_tokens} for the reply; is its context window smaller than that? {error}"
    )
