"""A model's reply in, what it wants done out: native tool calls, or one fenced block that names a tool.

In text a block in the language `bash` is a command for the tool of that name; in any other tool's language it holds
its arguments as JSON, or nothing. One block to a reply: more than one is a mistake, and said to be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from harness.messages import Message, ToolCall

_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w-]+)[ \t]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


class FormatError(Exception):
    """Says what is wrong with a reply, to the model."""


def actions_of(message: Message, tools: Collection[str], *, number: int) -> tuple[ToolCall, ...]:
    """Return the calls of a reply; raises FormatError where it has none, or none that can be used."""
    if message.tool_calls:
        return message.tool_calls
    blocks = [(name, text) for _, name, text in _BLOCK.findall(message.content) if name in tools]
    if len(blocks) != 1:
        how_many = "no tool was called" if not blocks else f"there are {len(blocks)} blocks in one reply"
        raise FormatError(
            f"{how_many}; call one of the tools {', '.join(sorted(tools))}, or write exactly one block that begins "
            "with ``` and the name of a tool"
        )
    name, text = blocks[0]
    raw = json.dumps({"command": text.rstrip("\n")}) if name == "bash" else text
    return (ToolCall.parse(f"text-{number}", name, raw),)
