"""Parse the tool calls of a model's reply: native calls, or one fenced block that names a tool.

In text, a block in the language `bash` is a command for that tool; a block in another tool's language contains the
tool's arguments as JSON, or nothing. A reply with more than one block is rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from harness.records.messages import Message, ToolCall

_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w-]+)[ \t]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


class FormatError(Exception):
    """A reply without a valid tool call; the message is for the model."""


def actions_of(message: Message, tools: Collection[str], *, number: int) -> tuple[ToolCall, ...]:
    """Return the tool calls of a reply; raises FormatError if it has none, or none that can be used."""
    if message.tool_calls:
        return message.tool_calls
    blocks = [(name, text) for _, name, text in _BLOCK.findall(message.content) if name in tools]
    if len(blocks) != 1:
        problem = "no tool was called" if not blocks else f"there are {len(blocks)} blocks in one reply"
        raise FormatError(
            f"{problem}; call one of the tools {', '.join(sorted(tools))}, or write exactly one block that begins "
            "with ``` and the name of a tool"
        )
    name, text = blocks[0]
    raw = json.dumps({"command": text.rstrip("\n")}) if name == "bash" else text
    return (ToolCall.parse(f"text-{number}", name, raw),)
