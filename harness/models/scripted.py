"""A model that says what a file says, reply after reply: for tests, demos and the first run without any model."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.messages import ASSISTANT, Message, Reply, Sampling, ToolCall
from harness.models.counting import Estimate
from harness.models.protocol import ToolSchema
from pytest_ssr.errors import ModelError, SettingsError


class ScriptedModel:
    """Replies from a list; after the last one there is none, which is a ModelError."""

    context_tokens = 1_000_000

    def __init__(self, name: str, replies: Sequence[Message], *, context_tokens: int = 0) -> None:
        """context_tokens: 0: more than any prompt has."""
        self.name = name
        if context_tokens:
            self.context_tokens = context_tokens
        self._replies = tuple(replies)
        self._next = 0
        self._lock = threading.Lock()
        self._estimate = Estimate()
        self.seen: list[tuple[Message, ...]] = []

    @classmethod
    def from_file(cls, path: Path, *, context_tokens: int = 0) -> ScriptedModel:
        """Read a JSON list; an item is a text, or {"content", "tool_calls": [{"name", "arguments"}]}.

        Raises SettingsError for a file that holds none.
        """
        try:
            items = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(items, list):
                raise TypeError("it is no list")
            replies = [_message(item, place) for place, item in enumerate(items)]
            return cls(f"scripted:{path}", replies, context_tokens=context_tokens)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SettingsError(f"{path} holds no list of replies for `scripted:`: {error}") from None

    @property
    def identity(self) -> str:
        """A hash of the replies."""
        told = json.dumps([m.to_json() for m in self._replies])
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def session(self, rollout: str) -> ScriptedModel:
        """Return the same model from its first reply on."""
        return ScriptedModel(self.name, self._replies, context_tokens=self.context_tokens)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the next reply."""
        with self._lock:
            self.seen.append(tuple(messages))
            if self._next >= len(self._replies):
                raise ModelError(f"{self.name} has no more replies after {len(self._replies)}")
            message = self._replies[self._next]
            self._next += 1
        return Reply(message, "tool_calls" if message.tool_calls else "stop", sampled=False)

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return an estimate."""
        return self._estimate(messages, tools)

    def close(self) -> None:
        """Nothing is held."""


def _message(item: str | Mapping[str, Any], place: int) -> Message:
    if isinstance(item, str):
        return Message(ASSISTANT, item)
    calls = [
        ToolCall.parse(
            f"call-{place}-{n}",
            call["name"],
            call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"]),
        )
        for n, call in enumerate(item.get("tool_calls", ()))
    ]
    return Message(ASSISTANT, item.get("content", ""), tuple(calls))
