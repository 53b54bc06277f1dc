"""Convert the messages of a record for chat templates, and find the rollouts that are a single conversation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from harness.exporters.model_calls import Message
from harness.exporters.record import Record
from harness.records.messages import SYSTEM, USER


def shown(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as trainers take them: arguments as objects, without the fault of malformed ones."""
    return [_shown(m) for m in messages]


def _shown(message: Message) -> dict[str, Any]:
    data = dict(message)
    if "tool_calls" in data:
        data["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {n: c["function"][n] for n in ("name", "arguments")}}
            for c in data["tool_calls"]
        ]
    return data


def first_prompt(record: Record) -> Sequence[Message]:
    """Return the first prompt; without calls, the messages that open a conversation. Empty if there is neither."""
    if record.calls:
        return record.calls[0].prompt
    opening = itertools.takewhile(lambda m: m["role"] in (SYSTEM, USER), record.data["messages"])
    return list(opening)


def conversation(record: Record) -> list[Message] | None:
    """Return a rollout's messages up to its last reply; None if the model did not see a single conversation.

    It did if each prompt consists of the prompt before it, the reply to that, and the output of tools.
    """
    messages: list[Message] = []
    for call in record.calls:
        if list(call.prompt[: len(messages)]) != messages:
            return None
        messages = [*call.prompt, call.reply]
    return messages
