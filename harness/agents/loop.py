"""The agent loop: query the model, execute the actions of its reply, and return the observations to it.

Every rollout ends with a reason and leaves a trajectory. A model that does not reply and a sandbox that breaks are
infrastructure failures: such a rollout is aborted and gets no grade.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from harness.agents.context import ContextWindow, Prompt, Window
from harness.agents.limits import RolloutLimits
from harness.agents.tools.in_text import describe_tools
from harness.agents.tools.protocol import Tool, schema_of
from harness.agents.turns import EndOfRollout, Turns
from harness.agents.workspace import Workspace
from harness.models.budget import BudgetSpentError
from harness.models.protocol import Model
from harness.records.messages import TOOL, USER, Reply, Sampling
from harness.records.trajectory import ExitReason, Journal, Sent, Trajectory, is_truncated
from pytest_ssr.errors import (
    ContextError,
    ModelError,
    ModelUnavailableError,
    SandboxError,
    SettingsError,
    SsrError,
    describe_unexpected,
)

_MAX_TIGHTENINGS = 6


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
    submitted: Callable[[], Mapping[str, object] | None] = lambda: None
    """Returns the result of an earlier submission in the rollout; None without one, or if it was the last."""
    tools_in_text: bool = False
    """Whether the system prompt describes the tools, because the model does not see those of a request."""

    def __post_init__(self) -> None:
        """Raise SettingsError for settings that allow no rollout."""
        if self.observe_as not in (TOOL, USER):
            raise SettingsError(f"the role of observations must be {TOOL} or {USER}, not {self.observe_as!r}")
        names = [tool.name for tool in self.tools]
        if duplicate := next((n for n in names if names.count(n) > 1), None):
            raise SettingsError(f"two tools have the name {duplicate!r}; rename one of them")

    def with_tools_in_text(self) -> Agent:
        """Return this agent for a model that does not see the tools of a request, nor perhaps the role `tool`."""
        return replace(self, tools_in_text=True, observe_as=USER)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools of each request."""
        return [] if self.tools_in_text else [schema_of(tool) for tool in self.tools]

    def system_prompt(self, system: str) -> str:
        """Return a system prompt with the tools that are not in the requests."""
        if not self.tools_in_text:
            return system
        return f"{system.rstrip()}\n\n{describe_tools([schema_of(tool) for tool in self.tools])}\n"

    def run(self, system: str, task: str, workspace: Workspace, journal: Journal) -> Trajectory:
        """Run the model until it submits or a limit ends the rollout.

        Ctrl-C and internal errors also close the record; see `record_end` for those that are raised again.
        """
        with ending(journal, workspace, self.partial_result, self.submitted):
            _Rollout(self, workspace, journal).go(system, task)
        return journal.trajectory


@contextlib.contextmanager
def ending(
    journal: Journal,
    workspace: Workspace,
    partial_result: Callable[[Workspace], Mapping[str, object]],
    submitted: Callable[[], Mapping[str, object] | None] = lambda: None,
) -> Iterator[None]:
    """Record the end of a rollout when its turns raise EndOfRollout, and ends by failures as `record_end` does.

    partial_result: returns the result of a rollout that a limit ended. submitted: returns the result of an earlier
    submission, which is then the result of the rollout, however it ends.
    """
    with record_end(journal):
        try:
            yield
        except EndOfRollout as end:
            reason, detail, result = end.reason, end.detail, end.result
        except ContextError as error:
            reason, detail, result = ExitReason.CONTEXT, str(error), None
        else:
            return
        if result is None:
            result = submitted()
        if result is None and is_truncated(reason):
            result = partial_result(workspace)
        journal.end(reason, detail, result)


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
        is_away = isinstance(error, ModelUnavailableError)
        journal.end(ExitReason.UNAVAILABLE if is_away else ExitReason.MODEL, str(error))
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
        self._turns = Turns(
            agent.tools,
            agent.limits,
            workspace,
            journal,
            observe_as=agent.observe_as,
            reply_tokens=agent.sampling.max_tokens,
            clock=agent.clock,
            submitted=agent.submitted,
        )
        self._schemas = agent.schemas
        self._window = agent.window or ContextWindow(
            agent.model.context_tokens - agent.sampling.max_tokens,
            lambda m: agent.model.count(m, tools=self._schemas),
        )

    def go(self, system: str, task: str) -> NoReturn:
        """Alternate between the model and its actions until the rollout ends."""
        self._turns.begin(self._agent.system_prompt(system), task)
        while True:
            self._turns.require_within_limits()
            self._turns.take(*self._reply())

    def _reply(self) -> tuple[Reply, Sequence[Sent]]:
        """Query the model; only the latency of its reply counts, not the time spent waiting for a busy server."""
        clock = self._agent.clock
        begin = clock()
        prompt, reply = self._query(len(self._journal.trajectory.calls))
        self._turns.wait(clock() - begin - reply.latency_s)
        return reply, prompt.sent

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
                room = error.limit_tokens and error.limit_tokens - sampling.max_tokens
                self._window.tighten(prompt, max(0, room))
        assert refused is not None
        raise refused if number else _first_prompt_refused(model, sampling, refused)


def _first_prompt_refused(model: Model, sampling: Sampling, error: ContextError) -> ModelError:
    """Return the error for a server that refuses a first prompt which should fit: it is not the solver's fault."""
    return ModelError(
        f"{model.name} refuses the first prompt of a rollout, which fits into {model.context_tokens} tokens with "
        f"{sampling.max_tokens} for the reply; is its context window smaller than that? {error}"
    )
