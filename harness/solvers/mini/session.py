"""Run one rollout of mini-swe-agent: serve the requests of its process, and record its messages.

Limits that the agent itself does not have are enforced here: time, tokens and the run's budget. The agent is stopped
at its next request, and ended if it makes none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.agents.context import elided
from harness.agents.limits import RolloutLimits
from harness.agents.tools.bash import refusal
from harness.agents.turns import EndOfRollout
from harness.agents.workspace import Workspace
from harness.models.budget import Budget
from harness.models.registry import Price
from harness.records.trajectory import ExitReason, Journal
from harness.solvers.mini.process import LateError, Process
from harness.solvers.mini.trajectory_writer import MARKER, STOPS, Recorder, ending
from pytest_ssr.errors import ModelError

_START_S = 300.0
_END_S = 120.0
_GRACE_S = 30.0
"""Seconds for the agent's own work after its time is over."""
_MAX_CHARS = 1_000_000
"""Characters of a command's output that are sent to the agent, which shows ten thousand of them to its model."""
_FAILED = {"returncode": -1, "output": ""}


@dataclass(slots=True)
class Session:
    """Serves one process until it ends."""

    process: Process
    workspace: Workspace
    journal: Journal
    limits: RolloutLimits
    budget: Budget
    collect: Callable[[Workspace], str]
    """Collects the submitted tree; returns why it cannot be submitted, or an empty string."""
    price: Price | None = None
    """The price of the model; None for that of litellm."""
    data: dict[str, Any] = field(default_factory=dict)
    """The trajectory in mini-swe-agent's format, without its messages."""
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    _deadline: float = 0.0
    _is_complete: bool = False
    """Whether the process sent its end."""
    _is_querying: bool = False
    """Whether the agent queries its model, which only the time limit ends."""
    _reservation: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """The reservation in the budget while the agent queries its model."""

    def run(self, job: Mapping[str, Any]) -> None:
        """Run the agent; raises EndOfRollout with the reason of its end, ModelError if its process fails."""
        recorder = Recorder(self.journal, self.price)
        self._deadline = time.monotonic() + _START_S
        try:
            with self._reservation:
                self._send(job)
                self._begin(self._receive())
                self._deadline = time.monotonic() + self.limits.wall_s
                while (event := self._receive())["event"] != "end":
                    self._handle(event, recorder)
                    if recorder.exit is not None:
                        self._deadline = time.monotonic() + _END_S
        except LateError:
            if recorder.exit is None:
                self._raise_late()
        else:
            self.data, self._is_complete = self.process.hide(event.get("data") or {}), True
        if recorder.exit is None:
            raise ModelError("mini-swe-agent ended without a reason")
        raise EndOfRollout(*ending(self.data.get("info") or {}, recorder.exit))

    def native(self) -> Mapping[str, Any]:
        """Return the rollout in the format of mini-swe-agent's files; empty if it has not begun.

        If the agent was ended from here, the exit status is set here, and the statistics count the answered calls.
        """
        if not self.data or self._is_complete:
            return {**self.data, "messages": self.messages} if self.data else {}
        done = self.journal.trajectory
        late = next(name for name, reason in STOPS.items() if reason is ExitReason.TIME_LIMIT)
        info = {
            **(self.data.get("info") or {}),
            "model_stats": {"instance_cost": done.cost_usd, "api_calls": len(done.calls)},
            "exit_status": late if done.exit_reason is ExitReason.TIME_LIMIT else str(done.exit_reason),
            "exception_str": done.detail,
        }
        return {**self.data, "info": info, "messages": self.messages}

    def _begin(self, event: Mapping[str, Any]) -> None:
        if event["event"] != "begin":
            raise ModelError(f"mini-swe-agent's process sent {event['event']!r} instead of 'begin'")
        self.data = self.process.hide(event.get("data") or {})
        described = self.journal.trajectory
        self.journal.describe(
            tools=event.get("tools") or [],
            sampling=described.sampling,
            mini_swe_agent=str((self.data.get("info") or {}).get("mini_version", "")),
        )

    def _raise_late(self) -> None:
        if not self.data:
            raise ModelError(f"mini-swe-agent did not start within {_START_S:g} s")
        raise EndOfRollout(ExitReason.TIME_LIMIT, f"{self.limits.wall_s:g} s")

    def _handle(self, event: Mapping[str, Any], recorder: Recorder) -> None:
        kind, self._is_querying = event["event"], False
        try:
            if kind == "query":
                self._query()
            elif kind == "execute":
                self._reservation.close()
                self._send(self._execute(event["command"]))
            elif kind == "messages":
                for message in event["messages"]:
                    self._record_message(message, recorder)
            else:
                raise ModelError(f"mini-swe-agent's process sent the unknown event {str(kind)[:80]!r}")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelError(f"mini-swe-agent's process sent an invalid event: {kind}: {error}") from None

    def _record_message(self, message: Mapping[str, Any], recorder: Recorder) -> None:
        if message.get("role") == "exit":
            message = self.process.hide(message)
        self.messages.append(message)
        reply = recorder.take(message)
        if reply is not None:
            self.budget.take(reply)
        self._reservation.close()

    def _query(self) -> None:
        """Permit a model call once the run's budget has room; raises BudgetSpentError when the budget is spent."""
        self._reservation.close()
        if stop := self._stop():
            self._send({"stop": stop})
            return
        begin = time.monotonic()
        self._reservation.enter_context(self.budget.call())
        self._deadline += time.monotonic() - begin
        self._send({})
        self._is_querying = True

    def _stop(self) -> str:
        done = self.journal.trajectory
        usage = done.usage
        if time.monotonic() >= self._deadline:
            return "TimeExceeded"
        if self.price is not None and done.cost_usd >= self.limits.usd:
            return "CostLimitExceeded"
        return "TokenLimitExceeded" if usage.prompt_tokens + usage.completion_tokens >= self.limits.tokens else ""

    def _execute(self, command: object) -> dict[str, Any]:
        """Run a command, always in the project's folder; a submission also collects the tree."""
        if not isinstance(command, str):
            return {**_FAILED, "exception_info": f"a command must be a string, not {type(command).__name__}"}
        merged = f"exec 2>&1\n{command}"
        if reason := refusal(merged):
            return {**_FAILED, "exception_info": reason}
        wall_s = max(1.0, min(self.limits.command_s, self._deadline - time.monotonic()))
        self.workspace.cwd, self.workspace.limits = "", replace(self.workspace.limits, wall_s=wall_s)
        done = self.workspace.shell(merged)
        text, omitted = elided((done.stdout + done.stderr).decode("utf-8", "replace"), _MAX_CHARS)
        extra = {"seconds": done.seconds, "limit": str(done.limit or ""), "elided_chars": omitted}
        result = {"output": text, "returncode": done.exit_code, "exception_info": "", "extra": extra}
        if done.limit is not None:
            limit = f"{done.limit} ({wall_s:g} s)" if done.limit == "wall time" else str(done.limit)
            result |= {"returncode": -1, "exception_info": f"the command was ended: it passed the limit on {limit}"}
        elif done.exit_code == 0 and _is_submission(text) and (reason := self.collect(self.workspace)):
            result |= {"output": f"this cannot be submitted: {reason}\n", "returncode": 1}
        return result

    def _send(self, data: Mapping[str, Any]) -> None:
        self.process.send(data, timeout_s=max(1.0, self._deadline - time.monotonic()))

    def _receive(self) -> dict[str, Any]:
        grace_s = 0.0 if self._is_querying else _GRACE_S
        return self.process.receive(timeout_s=max(grace_s, self._deadline - time.monotonic()))


def _is_submission(output: str) -> bool:
    """Return whether mini-swe-agent treats this output as a submission."""
    lines = output.lstrip().splitlines()
    return bool(lines) and lines[0].strip() == MARKER
