"""How many tokens a prompt has, where no tokenizer is at hand: estimated from above, and corrected by what servers say.

Tokenizers of today's models make one token of 3 to 4 characters of English or code, and never more than one of a byte.
The estimate starts at one token for two bytes and follows the highest share that the server has counted so far.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

from harness.messages import Message, Reply, Usage
from harness.models.protocol import ToolSchema

_FOR_A_MESSAGE = 8
_START, _MARGIN = 0.5, 1.1


class Estimate:
    """Counts tokens for one model."""

    def __init__(self) -> None:
        self._share = 0.0
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> int:
        """Return the estimate for a prompt."""
        share = min(1.0, self._share * _MARGIN) if self._share else _START
        return int(_size(messages, tools) * share) + _FOR_A_MESSAGE * (len(messages) + len(tools)) + 1

    def counted(self, messages: Sequence[Message], tools: Sequence[ToolSchema], reply: Reply) -> Reply:
        """Take in what the server counted for a prompt, and return the reply; what it did not count is estimated."""
        usage, size = reply.usage, _size(messages, tools)
        if usage.prompt_tokens and size:
            with self._lock:
                self._share = max(self._share, min(1.0, usage.prompt_tokens / size))
        said = reply.message
        silent = not (said.content or said.tool_calls or said.thoughts or reply.token_ids)
        if usage.prompt_tokens and (usage.completion_tokens or silent):
            return reply
        prompt = usage.prompt_tokens or len(reply.prompt_ids or ()) or self(messages, tools)
        completion = usage.completion_tokens or len(reply.token_ids or ()) or self([said])
        return replace(reply, usage=Usage(prompt, completion, usage.cached_tokens, estimated=True))


def _size(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> int:
    texts = (json.dumps(m.to_wire(), ensure_ascii=False) for m in messages)
    return sum(len(t.encode("utf-8", "replace")) for t in texts) + (len(json.dumps(list(tools))) if tools else 0)
