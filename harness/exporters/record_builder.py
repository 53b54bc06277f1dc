"""Build the canonical record of a trajectory and the context of its task and grade."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import eq
from typing import Any

from harness.exporters.record import Record
from harness.exporters.skipped import damaged
from harness.records.messages import TOOL, Message
from harness.records.trajectory import SCHEMA, ModelCall, Trajectory
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import decode

MALFORMED = "malformed"
"""The name under which a tool call's arguments are kept if they cannot be parsed; `fault` beside it has the reason."""


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """The context of a rollout besides its trajectory."""

    task: Mapping[str, Any] = field(default_factory=dict)
    """Keys: repository, tree_hash, strategy, operator, order, artifact, solve_rate, graded."""
    reward: float | None = None
    components: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """Keys: resolved (or valid), the reason, and whether the machine was at fault, among others."""
    flags: Sequence[str] = ()
    patch: str | None = None


def record_of(rollout: Trajectory, context: RolloutContext) -> Record:
    """Return the record of a rollout; an aborted one has no reward. Raises SkippedError for a damaged one."""
    aborted = rollout.status == "aborted"
    messages = _messages(rollout.messages)
    return Record.of(
        {
            "schema": SCHEMA,
            "rollout_id": rollout.rollout_id,
            "group_id": f"{rollout.task_id}#{rollout.model}",
            "task_id": rollout.task_id,
            "role": rollout.role,
            "attempt": rollout.attempt,
            "policy": {"model": rollout.model, "version": None},
            "sampling": dict(rollout.sampling),
            "task": dict(context.task),
            "tools": list(rollout.tools),
            "messages": messages,
            "calls": list(_calls(rollout, messages)),
            "status": rollout.status,
            "exit_reason": str(rollout.exit_reason),
            "reward": None if aborted else context.reward,
            "reward_components": {} if aborted else dict(context.components),
            "verdict": dict(context.verdict),
            "flags": list(context.flags),
            "patch": context.patch,
            "provenance": dict(rollout.provenance),
        }
    )


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return all messages; an observation gets the tool name of the last call before it with the same id."""
    names: dict[str, str] = {}
    converted = []
    for message in messages:
        # Some servers restart the numbers of calls with each reply.
        names |= {call.id: call.name for call in message.tool_calls}
        converted.append(_message(message, names.get(message.tool_call_id, "")))
    return converted


def _message(message: Message, name: str) -> dict[str, Any]:
    """Return a message as trainers read it: arguments are an object, thoughts one string."""
    try:
        thoughts = message.reasoning
    except (AttributeError, TypeError):
        raise damaged("the thoughts of a message are not a list of blocks") from None
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if thoughts:
        data["reasoning_content"] = thoughts
    if message.tool_calls:
        data["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                # A call that cannot be parsed has the same form here as in later prompts to the model.
                "function": {"name": call.name, "arguments": {MALFORMED: call.raw}, "fault": call.fault}
                if call.fault
                else {"name": call.name, "arguments": dict(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == TOOL:
        data["name"] = name
        data["tool_call_id"] = message.tool_call_id
    return data


def _calls(rollout: Trajectory, messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    previous: Sequence[int] = ()
    for call in rollout.calls:
        prefix, suffix = 0, None
        if call.prompt_ids is not None and call.token_ids is not None:
            prefix = common_prefix(previous, call.prompt_ids)
            suffix = list(call.prompt_ids[prefix:])
            previous = (*call.prompt_ids, *call.token_ids)
        yield {
            "i": call.i,
            "n_prompt_messages": len(call.sent),
            **_sent(call, messages),
            "assistant_index": call.assistant_index,
            "prefix_len": prefix,
            "prompt_suffix_ids": suffix,
            "token_ids": None if call.token_ids is None else list(call.token_ids),
            "logprobs": None if call.logprobs is None else list(call.logprobs),
            "finish_reason": call.finish_reason,
            "trainable": call.trainable,
            "cached": call.cached,
            "usage": {
                "prompt_tokens": call.usage.prompt_tokens,
                "completion_tokens": call.usage.completion_tokens,
                "cached_tokens": call.usage.cached_tokens,
                "estimated": call.usage.estimated,
            },
            "cost_usd": call.cost_usd,
            "latency_s": call.latency_s,
            "request_id": call.request_id,
            **({"rejected": [_message(m, "") for m in call.rejected]} if call.rejected else {}),
        }


def common_prefix(previous: Sequence[int], prompt: Sequence[int]) -> int:
    """Return the length of the common prefix of two token sequences."""
    if tuple(prompt[: len(previous)]) == tuple(previous):
        return len(previous)
    return sum(1 for _ in takewhile(bool, map(eq, previous, prompt)))


def _sent(call: ModelCall, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return {} if a prompt is the first messages in order, else its ranges of indices and its replacements."""
    if call.sent == tuple(range(len(call.sent))):
        return {}
    parts: list[Any] = []
    for item in call.sent:
        if isinstance(item, Mapping):
            try:
                parts.append(_message(decode(Message, item), _name_at(item.get("shortened"), messages)))
            except StoreError:
                raise damaged(f"call {call.i}: the prompt contains something other than messages") from None
        elif type(item) is not int or not 0 <= item < len(messages):
            raise damaged(f"call {call.i}: the prompt contains something other than messages")
        elif parts and isinstance(parts[-1], list) and parts[-1][1] == item:
            parts[-1][1] += 1
        else:
            parts.append([item, item + 1])
    return {"sent": parts}


def _name_at(index: object, messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the tool name of the message at an index; empty if there is no such message."""
    is_index = type(index) is int and 0 <= index < len(messages)
    return str(messages[index].get("name", "")) if is_index and isinstance(index, int) else ""
