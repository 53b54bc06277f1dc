"""Read the model calls of a canonical record, with the messages and tokens of their prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.exporters.skipped import damaged, require_plain
from harness.records.messages import ASSISTANT
from pytest_ssr.records.decoding import Natural, TokenId

_TOKEN_FIELDS = ("prompt_suffix_ids", "token_ids", "logprobs")

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _ToolCall:
    id: str
    function: _Function


@dataclass(frozen=True, slots=True)
class MessageShape:
    """The fields of a message in a record."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[_ToolCall, ...] = ()
    name: str = ""
    tool_call_id: str = ""
    reasoning_content: str = ""


@dataclass(frozen=True, slots=True)
class _Usage:
    prompt_tokens: Natural = 0
    completion_tokens: Natural = 0


@dataclass(frozen=True, slots=True)
class CallShape:
    """The fields of a call in a record; see `Call`."""

    usage: _Usage
    trainable: bool
    assistant_index: Natural = 0
    n_prompt_messages: Natural = 0
    sent: tuple[tuple[int, int] | MessageShape, ...] | None = None
    """Ranges of the messages, and messages that stand in for others; None for the first `n_prompt_messages`."""
    prefix_len: Natural = 0
    prompt_suffix_ids: tuple[TokenId, ...] | None = None
    token_ids: tuple[TokenId, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: str = ""
    rejected: tuple[MessageShape, ...] = ()


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


def read_calls(
    shapes: Sequence[CallShape], items: Sequence[Mapping[str, Any]], messages: Sequence[Message]
) -> Iterator[Call]:
    """Yield the calls of a record; raises SkippedError, naming the call, for one that does not fit the others.

    shapes: the calls. items: the same as plain data.
    """
    held = 0
    for number, (shape, item) in enumerate(zip(shapes, items, strict=True)):
        label = f"call {number}"
        require_plain({k: v for k, v in item.items() if k not in _TOKEN_FIELDS}, label)
        if shape.assistant_index >= len(messages) or messages[shape.assistant_index]["role"] != ASSISTANT:
            raise damaged(f"{label} has no reply among the messages")
        suffix, ids, prefix = shape.prompt_suffix_ids, shape.token_ids, shape.prefix_len
        if prefix > held or (suffix is None and prefix):
            raise damaged(f"{label} has a prefix longer than the previous prompt and reply")
        if suffix is not None and prefix + len(suffix) == 0:
            raise damaged(f"{label} has a prompt without tokens")
        if any(reply.role != ASSISTANT for reply in shape.rejected):
            raise damaged(f"{label}: rejected contains something other than replies")
        yield Call(
            i=number,
            prompt=_sent(shape, item, messages, label),
            reply=messages[shape.assistant_index],
            prefix_len=prefix,
            suffix=suffix,
            token_ids=ids,
            logprobs=_logprobs(shape, label),
            finish_reason=shape.finish_reason,
            trainable=shape.trainable,
            tokens=max(
                shape.usage.prompt_tokens + shape.usage.completion_tokens,
                prefix + len(suffix or ()) + len(ids or ()),
            ),
            rejected=tuple(item.get("rejected", ())),
        )
        if suffix is not None and ids is not None:
            held = prefix + len(suffix) + len(ids)


def _sent(shape: CallShape, item: Mapping[str, Any], messages: Sequence[Message], label: str) -> tuple[Message, ...]:
    """Return the messages of a prompt: the first `n_prompt_messages`, or the ranges and replacements in `sent`."""
    if shape.sent is None:
        parts: Sequence[Any] = [(0, shape.n_prompt_messages)] if shape.n_prompt_messages else []
    else:
        parts = item["sent"]
    prompt: list[Message] = []
    for part in parts:
        if isinstance(part, Mapping):
            prompt.append(part)
        elif 0 <= part[0] < part[1] <= shape.assistant_index:
            prompt += messages[part[0] : part[1]]
        else:
            raise damaged(f"{label}: sent refers to messages that did not exist yet")
    return tuple(prompt)


def _logprobs(shape: CallShape, label: str) -> tuple[float, ...] | None:
    if shape.logprobs is None:
        return None
    if not all(map(math.isfinite, shape.logprobs)):
        raise damaged(f"{label}: logprobs contain an infinite value or NaN")
    if shape.token_ids is None:
        # They belong to tokens that nobody knows. Earlier releases recorded them.
        return None
    if len(shape.logprobs) != len(shape.token_ids):
        raise damaged(f"{label}: logprobs do not match the tokens in number")
    return shape.logprobs
