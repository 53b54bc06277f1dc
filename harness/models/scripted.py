"""Replay replies from a file: for tests, demos and a first run without a model."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.models.protocol import ToolSchema
from harness.models.token_estimate import Estimate
from harness.records.messages import ASSISTANT, Message, Reply, Sampling, ToolCall
from pytest_ssr.errors import ModelError, SettingsError


class ScriptedModel:
    """Returns replies from a list; raises ModelError after the last one."""

    context_tokens = 1_000_000

    def __init__(self, name: str, replies: Sequence[Message], *, context_tokens: int = 0) -> None:
        """context_tokens: 0 for more than any prompt has."""
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
        """Read a JSON list; an item is a string, or {"content", "tool_calls": [{"name", "arguments"}]}.

        Raises SettingsError for a file without such a list.
        """
        try:
            items = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(items, list):
                raise TypeError("it is not a list")
            replies = [_message(item, index) for index, item in enumerate(items)]
            return cls(f"scripted:{path}", replies, context_tokens=context_tokens)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SettingsError(f"{path} is not a list of replies for `scripted:`: {error}") from None

    @property
    def identity(self) -> str:
        """A hash of the replies."""
        content = json.dumps([m.to_json() for m in self._replies])
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def session(self, rollout: str) -> ScriptedModel:
        """Return a copy of the model that starts at its first reply."""
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
        """Do nothing: the model holds no resources."""


def _message(item: str | Mapping[str, Any], index: int) -> Message:
    if isinstance(item, str):
        return Message(ASSISTANT, item)
    calls = [
        ToolCall.parse(
            f"call-{index}-{n}",
            call["name"],
            call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"]),
        )
        for n, call in enumerate(item.get("tool_calls", ()))
    ]
    return Message(ASSISTANT, item.get("content", ""), tuple(calls))
