"""The loop: what happened so far in, a reply of the model, its actions done, what came of them back to the model.

It always ends, and with a reason; whatever happens, the trajectory is there. A model that gives no reply and a sandbox
that breaks are faults of ours: such a rollout is aborted and gets no grade.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from harness.agents.actions import FormatError, actions_of
from harness.agents.context import ContextWindow, Prompt, Window, elided
from harness.agents.desk import Desk
from harness.agents.limits import RolloutLimits
from harness.agents.tools.protocol import Observation, Tool, problem, schema_of
from harness.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Reply, Sampling, ToolCall
from harness.models.protocol import Model
from harness.models.spending import BudgetSpentError
from harness.trajectory import ExitReason, Journal, ModelCall, Step, Trajectory, is_truncated
from pytest_ssr.errors import ContextError, ModelError, SandboxError, SettingsError, SsrError, unforeseen

_MOST_TIGHTENINGS = 6
_LONGEST_TURN = 3


class EndOfRollout(Exception):  # noqa: N818 - it is no error
    """Ends a rollout with a reason."""

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
    """The role of observations on actions that were written as text: `tool`, or `user` for servers that refuse it."""
    window: Window | None = None
    """What decides about what is sent; by default a `ContextWindow` that fits the model."""
    clock: Callable[[], float] = time.monotonic
    leave: Callable[[Desk], Mapping[str, object]] = lambda _: {}
    """Gives the result of a rollout that a limit ended, of what it has left so far."""

    def __post_init__(self) -> None:
        """Refuse what no rollout can be made with; raises SettingsError."""
        if self.observe_as not in (TOOL, USER):
            raise SettingsError(f"observations are sent as {TOOL} or as {USER}, not as {self.observe_as!r}")
        names = [tool.name for tool in self.tools]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise SettingsError(f"there are two tools of the name {twice!r}; rename one of them")

    def run(self, system: str, task: str, desk: Desk, journal: Journal) -> Trajectory:
        """Let the model work until it submits or a limit ends it.

        Ctrl-C and faults of our own close the record, too, and are raised again.
        """
        with closing(journal):
            try:
                _Rollout(self, desk, journal).go(system, task)
            except EndOfRollout as end:
                reason, detail, result = end.reason, end.detail, end.result
            except ContextError as error:
                reason, detail, result = ExitReason.CONTEXT, str(error), None
            if result is None and is_truncated(reason):
                result = self.leave(desk)
            journal.end(reason, detail, result)
        return journal.trajectory


@contextlib.contextmanager
def closing(journal: Journal) -> Iterator[None]:
    """Give a rollout its end where a fault ends it.

    A model that gives no reply, a sandbox that breaks and an error that nobody foresaw are in the record, and go no
    further. What ends the whole run is in the record, too, and is raised again: a budget that is spent, Ctrl-C,
    settings that cannot work.
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
        journal.end(ExitReason.INFRA, unforeseen(error))
    except BaseException as error:
        journal.end(ExitReason.INTERRUPTED, f"{type(error).__name__}: {error}")
        raise


class _Rollout:
    def __init__(self, agent: Agent, desk: Desk, journal: Journal) -> None:
        self._agent, self._journal = agent, journal
        self._desk = replace(desk, limits=replace(desk.limits, wall_s=agent.limits.command_s))
        self._tools = {tool.name: tool for tool in agent.tools}
        self._schemas = [schema_of(tool) for tool in agent.tools]
        self._window = agent.window or ContextWindow(
            agent.model.context_tokens - agent.sampling.max_tokens,
            lambda m: agent.model.count(m, tools=self._schemas),
        )
        self._begin = agent.clock()
        self._waited_s = 0.0
        self._malformed = 0
        self._last: deque[tuple[str, str, str]] = deque(maxlen=_LONGEST_TURN * agent.limits.repeats)

    def go(self, system: str, task: str) -> NoReturn:
        """Take turns until something ends it."""
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
        if self._left_s() <= 0:
            raise EndOfRollout(ExitReason.TIME_LIMIT, f"{limits.wall_s:g} s")
        if usage.prompt_tokens + usage.completion_tokens >= limits.tokens:
            raise EndOfRollout(ExitReason.TOKEN_LIMIT, f"{limits.tokens} tokens")
        if done.cost_usd >= limits.usd:
            raise EndOfRollout(ExitReason.COST_LIMIT, f"{limits.usd:g} USD")

    def _left_s(self) -> float:
        return self._agent.limits.wall_s - (self._agent.clock() - self._begin - self._waited_s)

    def _reply(self) -> Reply:
        """Ask the model; only the time that its reply took counts, not what went by until a busy server took it."""
        journal, clock = self._journal, self._agent.clock
        number = len(journal.trajectory.calls)
        begin = clock()
        prompt, reply = self._asked(number)
        self._waited_s += max(0.0, clock() - begin - reply.latency_s)
        place = journal.message(replace(reply.message, role=ASSISTANT))
        journal.call(ModelCall.of(number, prompt.sent, place, reply))
        return reply

    def _asked(self, number: int) -> tuple[Prompt, Reply]:
        """Return what was sent and the reply: less of the past where the server counts more tokens than we do."""
        model, sampling = self._agent.model, self._agent.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + number)
        refused: ContextError | None = None
        for _ in range(_MOST_TIGHTENINGS):
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
        raise refused if number else _first_refused(model, sampling, refused)

    def _take_malformed(self, why: str, reply: Reply, number: int) -> None:
        if reply.finish_reason == "length":
            why = f"the reply was cut off after {self._agent.sampling.max_tokens} tokens; be shorter"
        self._malformed += 1
        place = self._journal.message(Message(USER, why))
        self._journal.step(Step(len(self._journal.trajectory.steps), number, "format-error", observation_index=place))
        if self._malformed >= self._agent.limits.format_errors:
            raise EndOfRollout(ExitReason.FORMAT, f"{self._malformed} replies in a row called no tool")

    def _act(self, action: ToolCall, number: int, *, native: bool) -> None:
        found = self._used(action)
        # Names of files may hold halves of characters, and no request can.
        whole = found.text.encode("utf-8", "backslashreplace").decode()
        text, gone = elided(whole, self._agent.limits.output_chars)
        role = TOOL if native else self._agent.observe_as
        place = self._journal.message(Message(role, text, tool_call_id=action.id if role == TOOL else ""))
        known = action.name in self._tools and not action.fault
        step = Step(
            id=len(self._journal.trajectory.steps),
            call=number,
            kind="submit" if found.done else "tool" if known else "format-error",
            tool=action.name,
            arguments=action.arguments,
            observation_index=place,
            exit_code=found.exit_code,
            limit=found.limit,
            seconds=round(found.seconds, 3),
            elided_chars=gone + found.elided_chars,
        )
        self._journal.step(step)
        if found.done:
            raise EndOfRollout(ExitReason.SUBMITTED, "", dict(found.result))
        self._watch(action, text, known=known)

    def _used(self, action: ToolCall) -> Observation:
        tool = self._tools.get(action.name)
        if tool is None:
            return Observation(f"there is no tool {action.name!r}; there are {', '.join(self._tools)}", 1)
        if why := action.fault or problem(tool, action.arguments):
            return Observation(why, 1)
        left = max(1.0, min(self._agent.limits.command_s, self._left_s()))
        self._desk.limits = replace(self._desk.limits, wall_s=left)
        return tool.use(action.arguments, self._desk)

    def _watch(self, action: ToolCall, text: str, *, known: bool) -> None:
        """End a rollout that gets nowhere: calls of nothing, or the same few, with the same results."""
        limits = self._agent.limits
        self._malformed = 0 if known else self._malformed + 1
        if self._malformed >= limits.format_errors:
            raise EndOfRollout(ExitReason.FORMAT, f"{self._malformed} calls in a row could not be used")
        self._last.append((action.name, action.raw, text))
        for several in range(1, _LONGEST_TURN + 1):
            last = list(self._last)[-several * limits.repeats :]
            if len(last) == several * limits.repeats and len(set(last)) <= several:
                which = f"{action.name} was" if several == 1 else f"the same {several} calls were"
                raise EndOfRollout(ExitReason.LOOP, f"{which} made {limits.repeats} times with the same result")


def _first_refused(model: Model, sampling: Sampling, error: ContextError) -> ModelError:
    """Return the fault of a server that refuses a task which fits by all that is known: it is not the solver's."""
    return ModelError(
        f"{model.name} refuses the first prompt of a rollout, which fits into {model.context_tokens} tokens with "
        f"{sampling.max_tokens} for the reply; is its context window smaller than that? {error}"
    )
