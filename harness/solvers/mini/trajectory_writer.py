"""Convert messages of mini-swe-agent (trajectory format mini-swe-agent-1.1) into the record of a rollout.

Its messages are the same during a rollout and in its files, and the record contains no more than they do: an unusable
reply has only the server's response, and a submission has no observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.models.registry import Price
from harness.models.wire import reply_of
from harness.records.messages import SYSTEM, TOOL, USER, Message, Reply
from harness.records.trajectory import ExitReason, Journal, ModelCall, Step

MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of the output of a command that submits."""
STOPS = {
    "TokenLimitExceeded": ExitReason.TOKEN_LIMIT,
    "TimeExceeded": ExitReason.TIME_LIMIT,
    "CostLimitExceeded": ExitReason.COST_LIMIT,
}
"""Exit statuses with which a session stops the agent."""
_REASONS = {
    **STOPS,
    "Submitted": ExitReason.SUBMITTED,
    "RepeatedFormatError": ExitReason.FORMAT,
    "ContextWindowExceededError": ExitReason.CONTEXT,
    "UserInterruption": ExitReason.INTERRUPTED,
    "KeyboardInterrupt": ExitReason.INTERRUPTED,
    "": ExitReason.INTERRUPTED,
}
_MODEL_ERRORS = frozenset(
    (
        *("APIConnectionError", "APIError", "APIResponseValidationError", "AuthenticationError", "BadGatewayError"),
        *("BadRequestError", "ContentPolicyViolationError", "InternalServerError", "NotFoundError", "OpenAIError"),
        *("PermissionDeniedError", "RateLimitError", "RejectedRequestError", "ServiceUnavailableError", "Timeout"),
        *("UnprocessableEntityError", "UnsupportedParamsError", "BudgetExceededError", "LimitsExceededError"),
    )
)
_MAX_DETAIL_CHARS = 500


class Recorder:
    """Writes the messages of one rollout into its journal, in order."""

    def __init__(self, journal: Journal, price: Price | None = None) -> None:
        """price: of the model, in place of the cost that the messages give."""
        self._journal, self._price = journal, price
        self._sent: list[int] = []
        self._pending: list[Mapping[str, Any]] = []
        self.exit: Mapping[str, Any] | None = None
        """The `extra` of the last message, once it arrived."""

    def take(self, message: Mapping[str, Any]) -> Reply | None:
        """Write one message, and return its reply if it has one; raises ModelError or TypeError for an invalid one."""
        role, extra = message.get("role"), message.get("extra") or {}
        if not isinstance(role, str) or not isinstance(extra, Mapping):
            raise TypeError("a message has no role, or its extra is not an object")
        if role == "exit":
            self._end(extra)
            return None
        if role == "assistant":
            return self._reply(message, extra)
        if extra.get("interrupt_type") == "FormatError":
            return self._malformed(message, extra)
        if role == TOOL or "raw_output" in extra:
            self._observation(message, extra)
            return None
        self._sent.append(self._journal.message(Message(SYSTEM if role == SYSTEM else USER, _text(message))))
        return None

    def _reply(self, message: Mapping[str, Any], extra: Mapping[str, Any]) -> Reply:
        reply, index = self._model_call(extra, message)
        self._sent.append(index)
        actions = extra.get("actions") or []
        self._pending = [a for a in actions if isinstance(a, Mapping)] if isinstance(actions, list) else []
        return reply

    def _malformed(self, message: Mapping[str, Any], extra: Mapping[str, Any]) -> Reply:
        """Record an unusable reply: the model does not see it again, only the error."""
        reply, _ = self._model_call(extra, {"content": ""})
        index = self._journal.message(Message(USER, _text(message)))
        self._sent.append(index)
        done = self._journal.trajectory
        self._journal.step(Step(len(done.steps), len(done.calls) - 1, "format-error", observation_index=index))
        return reply

    def _model_call(self, extra: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[Reply, int]:
        response = extra.get("response")
        has_choices = isinstance(response, Mapping) and bool(response.get("choices"))
        data = response if has_choices else {"choices": [{"message": {**message, "content": _text(message)}}]}
        cost = _number(extra.get("cost"))
        # mini-swe-agent counts calls without a known price as zero.
        reply = reply_of(data, latency_s=_number(extra.get("latency_s")), cost_usd=cost or None)
        if not reply.usage.prompt_tokens + reply.usage.completion_tokens:
            reply = replace(reply, usage=replace(reply.usage, estimated=True))
        elif self._price is not None:
            reply = replace(reply, cost_usd=self._price.cost_usd(reply.usage))
        index = self._journal.message(reply.message)
        number = len(self._journal.trajectory.calls)
        self._journal.call(ModelCall.of(number, self._sent, index, reply))
        return reply, index

    def _observation(self, message: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        call_id = str(message.get("tool_call_id") or "")
        index = self._journal.message(
            Message(TOOL, _text(message), tool_call_id=call_id)
            if message.get("role") == TOOL
            else Message(USER, _text(message))
        )
        self._sent.append(index)
        action = next((a for a in self._pending if a.get("tool_call_id", "") == call_id), {})
        self._pending = [a for a in self._pending if a is not action]
        code, omitted = extra.get("returncode"), extra.get("elided_chars")
        self._step(
            "tool",
            action,
            observation_index=index,
            exit_code=code if type(code) is int and not extra.get("limit") else None,
            limit=str(extra.get("limit") or ""),
            seconds=round(_number(extra.get("seconds")), 3),
            elided_chars=omitted if type(omitted) is int else 0,
        )

    def _end(self, extra: Mapping[str, Any]) -> None:
        self.exit = extra
        if extra.get("exit_status") != "Submitted" or not self._pending:
            return
        submits = [MARKER in str(a.get("command")) for a in self._pending]
        last = submits.index(True) if any(submits) else len(submits) - 1
        for action in self._pending[:last]:
            self._step("tool", action)
        self._step("submit", self._pending[last], exit_code=0)

    def _step(self, kind: str, action: Mapping[str, Any], **fields: Any) -> None:
        done = self._journal.trajectory
        command = {"command": str(action["command"])} if "command" in action else {}
        self._journal.step(Step(len(done.steps), len(done.calls) - 1, kind, "bash", command, **fields))


def ending(info: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[ExitReason, str]:
    """Return the exit reason of a rollout and its details. info: of a trajectory; extra: of its last message.

    Any other status than the agent's own ones is the name of an exception, raised by the model or by the machine.
    """
    status = str(extra.get("exit_status") or info.get("exit_status") or "")
    message = " ".join(str(extra.get("exception_str") or info.get("exception_str") or "").split())[:_MAX_DETAIL_CHARS]
    detail = ": ".join(filter(None, (status, message)))
    if status in _REASONS:
        return _REASONS[status], "" if status == "Submitted" else detail
    if status == "LimitsExceeded":
        config, stats = info.get("config") or {}, info.get("model_stats") or {}
        steps = _number((config.get("agent") or {}).get("step_limit"))
        return (
            ExitReason.STEP_LIMIT if 0 < steps <= _number(stats.get("api_calls")) else ExitReason.COST_LIMIT
        ), detail
    return (ExitReason.MODEL if status in _MODEL_ERRORS else ExitReason.INFRA), detail


def _number(value: object) -> float:
    """Return the value if it is a finite number of at least 0, or else 0."""
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return number if 0 <= number < math.inf else 0.0


def _text(message: Mapping[str, Any]) -> str:
    """Return a message's text, joined if it has several parts."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(p.get("text", "")) for p in content if isinstance(p, Mapping))
    return str(content or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
