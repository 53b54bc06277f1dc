"""Read the model calls of a canonical record, with the messages and tokens of their prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.exporters.skipped import damaged, require_plain
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER

_MESSAGE_ROLES = (SYSTEM, USER, ASSISTANT, TOOL)
_MOST_ID = 2**31 - 1
_TOKEN_FIELDS = ("prompt_suffix_ids", "token_ids", "logprobs")

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the model, and its reply."""

    i: int
    prompt: tuple[Message, ...]
    """The messages that were sent."""
    reply: Message
    """The assistant's message."""
    prefix_len: int
    """Number of tokens of the previous prompt and reply that the prompt begins with."""
    suffix: tuple[int, ...] | None
    """The rest of the prompt's tokens; None if the server did not return them."""
    token_ids: tuple[int, ...] | None
    """The reply's tokens, as they were sampled."""
    logprobs: tuple[float, ...] | None
    """One for each of `token_ids`."""
    finish_reason: str
    trainable: bool
    """False for a reply that comes from a script and was not sampled."""
    tokens: int
    """Of prompt and reply together: the reported usage, or the number of token ids if that is larger."""

    rejected: tuple[Message, ...] = ()
    """Replies that were tried in place of this one, and whose tests failed."""

    @property
    def has_ids(self) -> bool:
        """Whether the tokens of both prompt and reply are recorded."""
        return self.suffix is not None and self.token_ids is not None

    @property
    def is_cut(self) -> bool:
        """Whether the reply ended at a limit: as text it would teach a model to stop in the middle."""
        return self.finish_reason == "length"

    @property
    def is_malformed(self) -> bool:
        """Whether the reply calls a tool with arguments that are not a JSON object."""
        return any("fault" in c["function"] for c in self.reply.get("tool_calls", ()))


def require_message(message: object) -> None:
    """Raise SkippedError unless a value is a message of a record."""
    if not isinstance(message, Mapping) or message.get("role") not in _MESSAGE_ROLES:
        raise damaged("a message has no role")
    if type(message.get("content")) is not str:
        raise damaged("the content of a message is not a string")
    calls = message.get("tool_calls", [])
    if not isinstance(calls, list):
        raise damaged("tool_calls of a message is not a list")
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if (
            not isinstance(function, Mapping)
            or type(call.get("id")) is not str
            or type(function.get("name")) is not str
        ):
            raise damaged("a tool call of a message has no name")
        if not isinstance(function.get("arguments"), Mapping):
            raise damaged("the arguments of a tool call are not an object")
    for name in ("name", "tool_call_id", "reasoning_content"):
        if type(message.get(name, "")) is not str:
            raise damaged(f"{name} of a message is not a string")


def read_calls(items: Sequence[object], messages: Sequence[Message]) -> Iterator[Call]:
    """Yield the calls of a record; raises SkippedError, naming call and field, for one that is damaged."""
    held = 0
    for number, item in enumerate(items):
        label = f"call {number}"
        if not isinstance(item, Mapping):
            raise damaged(f"{label} is not an object")
        require_plain({k: v for k, v in item.items() if k not in _TOKEN_FIELDS}, label)
        index = _natural(item, "assistant_index", label)
        if index >= len(messages) or messages[index]["role"] != ASSISTANT:
            raise damaged(f"{label} has no reply among the messages")
        suffix, ids = (_ids(item.get(name), f"{label}: {name}") for name in ("prompt_suffix_ids", "token_ids"))
        prefix = _natural(item, "prefix_len", label)
        if prefix > held or (suffix is None and prefix):
            raise damaged(f"{label} has a prefix longer than the previous prompt and reply")
        if suffix is not None and prefix + len(suffix) == 0:
            raise damaged(f"{label} has a prompt without tokens")
        usage = item.get("usage")
        if not isinstance(usage, Mapping) or type(item.get("trainable")) is not bool:
            raise damaged(f"{label} lacks usage or trainable")
        yield Call(
            i=number,
            prompt=_sent(item, messages, index, label),
            reply=messages[index],
            prefix_len=prefix,
            suffix=suffix,
            token_ids=ids,
            logprobs=_logprobs(item.get("logprobs"), ids, f"{label}: logprobs"),
            finish_reason=str(item.get("finish_reason", "")),
            trainable=item["trainable"],
            tokens=max(
                sum(_natural(usage, name, label) for name in ("prompt_tokens", "completion_tokens")),
                prefix + len(suffix or ()) + len(ids or ()),
            ),
            rejected=_rejected(item.get("rejected", []), label),
        )
        if suffix is not None and ids is not None:
            held = prefix + len(suffix) + len(ids)


def _sent(call: Mapping[str, Any], messages: Sequence[Message], index: int, label: str) -> tuple[Message, ...]:
    """Return the messages of a prompt: the first `n_prompt_messages`, or the ranges and replacements in `sent`."""
    sent = call.get("sent")
    if sent is None:
        sent = [[0, count]] if (count := _natural(call, "n_prompt_messages", label)) else []
    if not isinstance(sent, list):
        raise damaged(f"{label}: sent is not a list")
    prompt: list[Message] = []
    for part in sent:
        if isinstance(part, Mapping):
            require_message(part)
            prompt.append(part)
        elif isinstance(part, list) and len(part) == 2 and all(type(n) is int for n in part):
            if not 0 <= part[0] < part[1] <= index:
                raise damaged(f"{label}: sent refers to messages that did not exist yet")
            prompt += messages[part[0] : part[1]]
        else:
            raise damaged(f"{label}: sent contains something other than messages")
    return tuple(prompt)


def _rejected(items: object, label: str) -> tuple[Message, ...]:
    if not isinstance(items, list):
        raise damaged(f"{label}: rejected is not a list")
    for item in items:
        require_message(item)
        if item["role"] != ASSISTANT:
            raise damaged(f"{label}: rejected contains something other than replies")
    return tuple(items)


def _natural(data: Mapping[str, Any], name: str, label: str) -> int:
    value = data.get(name, 0)
    if type(value) is not int or value < 0:
        raise damaged(f"{label}: {name} is not a non-negative integer")
    return value


def _ids(values: object, label: str) -> tuple[int, ...] | None:
    if values is None:
        return None
    if not isinstance(values, list | tuple) or not set(map(type, values)) <= {int}:
        raise damaged(f"{label} are not token ids")
    if values and not 0 <= min(values) <= max(values) <= _MOST_ID:
        raise damaged(f"{label} contain a token outside of any vocabulary")
    return tuple(values)


def _logprobs(values: object, ids: tuple[int, ...] | None, label: str) -> tuple[float, ...] | None:
    if values is None:
        return None
    if not isinstance(values, list | tuple) or not set(map(type, values)) <= {int, float}:
        raise damaged(f"{label} are not numbers")
    try:
        are_finite = all(map(math.isfinite, values))
    except OverflowError:
        are_finite = False
    if not are_finite:
        raise damaged(f"{label} contain an infinite value or NaN")
    if ids is None:
        # They belong to tokens that nobody knows. Earlier releases recorded them.
        return None
    if len(values) != len(ids):
        raise damaged(f"{label} do not match the tokens in number")
    return tuple(map(float, values))
