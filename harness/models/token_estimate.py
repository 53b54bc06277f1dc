"""Estimate the tokens of a prompt from above without a tokenizer, corrected by the counts of servers.

Tokenizers of current models make one token of 3 to 4 characters of English or code, and at most one token per byte.
The estimate starts at one token per two bytes and follows the highest ratio that the server has counted so far.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

from harness.models.protocol import ToolSchema
from harness.records.messages import Message, Reply, Usage

_TOKENS_PER_MESSAGE = 8
_START, _MARGIN = 0.5, 1.1


class Estimate:
    """Estimates token counts for one model."""

    def __init__(self) -> None:
        self._share = 0.0
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> int:
        """Return the estimated number of tokens of a prompt."""
        share = min(1.0, self._share * _MARGIN) if self._share else _START
        return int(_size(messages, tools) * share) + _TOKENS_PER_MESSAGE * (len(messages) + len(tools)) + 1

    def learn(self, messages: Sequence[Message], tools: Sequence[ToolSchema], prompt_tokens: int) -> None:
        """Learn from the server's count for a prompt; 0 if it gave none."""
        size = _size(messages, tools)
        if prompt_tokens and size:
            with self._lock:
                self._share = max(self._share, min(1.0, prompt_tokens / size))

    def counted(self, messages: Sequence[Message], tools: Sequence[ToolSchema], reply: Reply) -> Reply:
        """Learn from the server's count for a prompt, and return the reply with missing counts estimated."""
        usage = reply.usage
        self.learn(messages, tools, usage.prompt_tokens)
        message = reply.message
        is_empty = not (message.content or message.tool_calls or message.thoughts or reply.token_ids)
        if usage.prompt_tokens and (usage.completion_tokens or is_empty):
            return reply
        prompt = usage.prompt_tokens or len(reply.prompt_ids or ()) or self(messages, tools)
        completion = usage.completion_tokens or len(reply.token_ids or ()) or self([message])
        return replace(reply, usage=Usage(prompt, completion, usage.cached_tokens, estimated=True))


def _size(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> int:
    strings = (json.dumps(m.to_wire(), ensure_ascii=False) for m in messages)
    return sum(len(t.encode("utf-8", "replace")) for t in strings) + (len(json.dumps(list(tools))) if tools else 0)
