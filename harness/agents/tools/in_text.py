"""Tools for models that do not see the tools of a request: a description in the system prompt, and calls in a reply.

A call is one fenced block that begins with the name of a tool: a command for `bash`, else a JSON object of arguments.
The forms of models that were trained with other agents or with tools are read as well: `<execute>COMMAND</execute>` for
`bash`, and `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from harness.models.protocol import ToolSchema

_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<name>[\w-]+)[ \t]*\n(?P<body>.*?)^[ \t]*(?P=fence)[ \t]*$"
    r"|<execute>(?P<command>.*?)</execute>",
    re.MULTILINE | re.DOTALL,
)
_TAGGED = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_SHELL = "bash"
_HERE_DOCUMENT = "<<"
_MARK = re.compile(r"</?(execute|tool_call)>|^[ \t]*(`{3}|~{3})|\A\s*<\w+>", re.MULTILINE)


def describe_tools(tools: Sequence[ToolSchema]) -> str:
    """Return the part of a system prompt that describes tools and how a reply calls one."""
    lines = [
        "You have these tools. Call one in each reply, by exactly one block that begins with ``` and the name of the "
        "tool, and ends with ```:",
    ]
    for tool in tools:
        function = tool["function"]
        lines += ["", f"`{function['name']}`: {function['description']}", *_example(function)]
    return "\n".join(lines)


def is_reply(text: str) -> bool:
    """Return whether a text is the reply of a model, which has to be read, and not a shell command.

    A reply has the tag `<execute>` or `<tool_call>`, a line that begins with ``` or ~~~, or a tag such as `<plan>` at
    its beginning. In a command these occur only in a here-document, so what follows its `<<` is not looked at.
    """
    return _MARK.search(text.partition(_HERE_DOCUMENT)[0]) is not None


def calls_in(text: str, tools: Collection[str]) -> list[tuple[str, str]]:
    """Return the tool calls in a reply: the name of a tool, and its arguments as JSON."""
    blocks = [(name, body) for name, body in _unwrapped(_blocks_in(text)) if name in tools]
    if blocks:
        return [(name, json.dumps({"command": body.rstrip("\n")}) if name == _SHELL else body) for name, body in blocks]
    return [call for tagged in _TAGGED.findall(text) if (call := _call_in(tagged, tools)) is not None]


def text_beside_calls(text: str) -> str:
    """Return the text of a reply without its blocks."""
    return _TAGGED.sub("", _BLOCK.sub("", text)).strip()


def _blocks_in(text: str) -> list[tuple[str, str]]:
    """Return the outermost blocks of a text, a name and a body each; a block in a block is text, as in a heredoc."""
    matches = _BLOCK.finditer(text)
    return [(m["name"], m["body"]) if m["name"] else (_SHELL, m["command"].strip()) for m in matches]


def _unwrapped(blocks: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Return blocks, and in place of a command that is nothing but blocks, as `<execute>` in a fence, those."""
    for name, body in blocks:
        if name == _SHELL and _BLOCK.fullmatch(body.strip()):
            yield from _blocks_in(body)
        else:
            yield name, body


def _example(function: Any) -> list[str]:
    name, properties = function["name"], function["parameters"].get("properties", {})
    if name == _SHELL:
        return [f"```{name}", "COMMAND", "```"]
    required = function["parameters"].get("required", ())
    shown = {key: f"<{value.get('type', 'string')}>" for key, value in properties.items() if key in required}
    others = [f"`{key}` ({_kind(value)})" for key, value in properties.items()]
    arguments = [f"Arguments: {', '.join(others)}."] if others else []
    return [*arguments, f"```{name}", json.dumps(shown), "```"]


def _kind(schema: Any) -> str:
    kind = " or ".join(schema["enum"]) if "enum" in schema else str(schema.get("type", "string"))
    return f"{kind}; {schema['description']}" if "description" in schema else kind


def _call_in(tagged: str, tools: Collection[str]) -> tuple[str, str] | None:
    try:
        data = json.loads(tagged)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("name") not in tools:
        return None
    return str(data["name"]), json.dumps(data.get("arguments", {}))
