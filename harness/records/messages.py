"""Records of chat messages, tool calls and replies, and their wire form in the OpenAI protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pytest_ssr.errors import SettingsError

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
REASONING = ("reasoning", "reasoning_content", "thinking_blocks")
"""The fields in which servers return a model's reasoning; the last holds blocks of Anthropic's protocol."""
MAX_DEPTH = 50
_CONTAINERS = (dict, list, tuple)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call, as a model wrote it."""

    id: str
    """Ties the observation to the call."""
    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    """By name; empty if they cannot be parsed."""
    raw: str
    """The arguments exactly as the model wrote them."""
    fault: str = ""
    """Why the arguments cannot be parsed; empty if they can."""

    @classmethod
    def parse(cls, call_id: str, name: str, raw: str) -> ToolCall:
        """Parse arguments that are a JSON object; anything else sets `fault`, and never raises."""
        try:
            arguments = json.loads(raw) if raw.strip() else {}
        except (ValueError, RecursionError) as error:
            return cls(call_id, name, {}, raw, f"the arguments are not JSON: {error}")
        if not isinstance(arguments, dict):
            return cls(call_id, name, {}, raw, "the arguments are not a JSON object")
        if is_deep(arguments):
            return cls(call_id, name, {}, raw, f"the arguments are nested deeper than {MAX_DEPTH} levels")
        return cls(call_id, name, arguments, raw)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; observations have the role `tool`, so that templates keep the model's earlier reasoning."""

    role: str
    """system, user, assistant or tool."""
    content: str
    """Its text."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that an assistant calls."""
    tool_call_id: str = ""
    """The call that an observation answers."""
    thoughts: Mapping[str, Any] = field(default_factory=dict)
    """The `REASONING` fields of an assistant's message, as its server sent them; they are sent back unchanged."""

    @property
    def reasoning(self) -> str:
        """The assistant's reasoning, if its server returns it separately."""
        for name in REASONING[:2]:
            if self.thoughts.get(name):
                return str(self.thoughts[name])
        return "\n".join(str(block.get("thinking", "")) for block in self.thoughts.get(REASONING[2], ()))

    @property
    def thought_chars(self) -> int:
        """Number of characters of the reasoning, as it is sent."""
        return len(json.dumps(dict(self.thoughts), ensure_ascii=False)) if self.thoughts else 0

    def to_wire(self) -> dict[str, Any]:
        """Return the message in the form that servers of the OpenAI protocol accept.

        The reasoning is sent back with its turn: templates and providers decide how much of it the model sees, and
        some refuse a turn with tool calls without it.
        """
        wire: dict[str, Any] = {"role": self.role, "content": self.content, **self.thoughts}
        if self.tool_calls:
            wire["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _as_json(c)}}
                for c in self.tool_calls
            ]
        if self.role == TOOL:
            wire["tool_call_id"] = self.tool_call_id
        return wire

    def to_json(self) -> dict[str, Any]:
        """Return plain data for records, in which arguments are objects and `raw` holds their exact text."""
        data: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            data["tool_calls"] = [asdict(c) for c in self.tool_calls]
        if self.tool_call_id:
            data["tool_call_id"] = self.tool_call_id
        if self.thoughts:
            data["thoughts"] = dict(self.thoughts)
        return data


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; every field is sent, because servers have other defaults."""

    temperature: float = 1.0
    """The value of the paper's evaluation, like `top_p`."""
    top_p: float = 0.95
    """The probability mass that is sampled from."""
    max_tokens: int = 4096
    """Maximum number of tokens of one reply."""
    seed: int | None = None
    """Differs between attempts and steps, so that a deterministic server does not repeat its reply."""

    def __post_init__(self) -> None:
        """Raise SettingsError for a value that no server accepts."""
        for name, valid, expected in (
            ("temperature", 0 <= self.temperature < math.inf, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
        ):
            if not valid:
                raise SettingsError(f"{name} must be {expected}, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False
    """Whether the client estimated a count that the server did not report."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of a model."""

    message: Message
    """The assistant's message."""
    finish_reason: str
    """stop, tool_calls, length or another value that the server sent."""
    usage: Usage = field(default_factory=Usage)
    """Tokens as the server counts them, or estimated by the client."""
    cost_usd: float | None = None
    """Cost in USD; None if the price is unknown."""
    latency_s: float = 0.0
    """Seconds until the reply was complete, without retries."""
    request_id: str = ""
    """The server's id of the request."""
    prompt_ids: tuple[int, ...] | None = None
    """The prompt's token ids, if the server returns them."""
    token_ids: tuple[int, ...] | None = None
    """The reply's token ids, if the server returns them."""
    logprobs: tuple[float, ...] | None = None
    """One for each of `token_ids`."""
    sampled: bool = True
    """False if no model was queried: a script's reply, or the recording of one."""
    cached: bool = False
    """Whether the reply came from a cache, and so was paid for earlier."""

    def to_json(self) -> dict[str, Any]:
        """Return the reply as plain data for records and the cache."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**data, "message": self.message.to_json(), "usage": asdict(self.usage)}


def is_deep(data: object) -> bool:
    """Return whether plain data is nested so deeply that code which recurses over it could fail."""
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        containers = [item for item in level if isinstance(item, _CONTAINERS)]
        level = []
        for container in containers:
            level.extend(container.values() if isinstance(container, dict) else container)
        if not level:
            return False
    return True


def _as_json(call: ToolCall) -> str:
    """Return arguments as JSON: many servers parse those of earlier turns, and refuse anything else."""
    return json.dumps({"malformed": call.raw}) if call.fault else call.raw or "{}"


def characters(messages: Sequence[Message]) -> int:
    """Return how many characters these messages have, as they are sent to a model."""
    return sum(
        len(m.content)
        + len(m.tool_call_id)
        + sum(len(c.name) + len(c.raw) + len(c.id) for c in m.tool_calls)
        + m.thought_chars
        for m in messages
    )
