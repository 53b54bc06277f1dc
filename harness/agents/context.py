"""Select the messages of a rollout that a model is sent: all of them while they fit, else the beginning and the end.

The system message, the task and the newest turn are always sent. Of the remaining room, the oldest turns get 30 % and
the newest turns the rest. Turns are sent whole, and one line gives the number of omitted ones. A cut omits more turns
than necessary: then many steps pass until the next cut, and each of their prompts begins with the previous prompt,
which suits prompt caches and training on whole segments. If the newest turn does not fit alone, its long strings are
shortened in the middle. The selection is the same in training and in evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from harness.records.messages import ASSISTANT, USER, Message, ToolCall
from harness.records.trajectory import Sent
from pytest_ssr.errors import ContextError
from pytest_ssr.records.decoding import decode

HEAD_SHARE = 0.3
_KEPT_SHARE = 0.75
_MIN_CHARS, _MARK_CHARS = 40, 50
"""The marker of an elision has at most `_MARK_CHARS` characters, so a string that was elided is not elided again."""
Count = Callable[[Sequence[Message]], int]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages of one request."""

    messages: tuple[Message, ...]
    """In order."""
    sent: tuple[Sent, ...]
    """The same messages as indices into the rollout; a message that stands in for others is given in full."""


def elided(text: str, max_chars: int) -> tuple[str, int]:
    """Return the head and tail of a string, about `max_chars` characters at most, and how many characters it omits."""
    if len(text) <= max_chars + _MARK_CHARS:
        return text, 0
    half = max_chars // 2
    omitted = len(text) - 2 * half
    return f"{text[:half]}\n[... {omitted} characters left out ...]\n{text[len(text) - half :]}", omitted


class Window(Protocol):
    """Selects the messages of a prompt."""

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return the prompt for these messages."""

    def tighten(self, refused: Prompt, room: int = 0) -> None:
        """Make later prompts shorter than one that the server refused. room: tokens that it allows; 0 if unknown."""


class ContextWindow:
    """Selects the messages of each prompt of one rollout."""

    def __init__(self, budget: int, count: Count) -> None:
        """budget: tokens of a prompt. count: tokens of messages as a prompt; more messages never have fewer."""
        self._budget, self._count = budget, count
        self._gap = (0, 0)

    def tighten(self, refused: Prompt, room: int = 0) -> None:
        """Reduce the budget to what the server allows, and if it was smaller already, to less than the refused prompt.

        A server counts more tokens than the estimate, or its context is smaller than assumed.
        """
        counted = self._count(refused.messages)
        self._budget = min(room or self._budget, self._budget)
        if counted <= self._budget:
            self._budget = counted * 4 // 5

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return the prompt for these messages; raises ContextError if not even its required messages fit."""
        start = next((i for i, m in enumerate(messages) if m.role == ASSISTANT), len(messages))
        turns = _turns(messages, start)
        fixed = list(range(start))
        whole = self._assemble(messages, fixed, turns, self._gap)
        if self._fits(whole):
            return whole
        if not turns:
            raise ContextError(f"the task alone does not fit into {self._budget} tokens")
        self._gap = self._widest_gap(messages, fixed, turns)
        cut = self._assemble(messages, fixed, turns, self._gap)
        return cut if self._fits(cut) else self._shorten(cut, len(turns[-1]))

    def _fits(self, prompt: Prompt) -> bool:
        return self._count(prompt.messages) <= self._budget

    def _assemble(
        self, messages: Sequence[Message], fixed: list[int], turns: list[range], gap: tuple[int, int]
    ) -> Prompt:
        first, last = gap
        sent: list[Sent] = [*fixed, *(i for turn in turns[:first] for i in turn)]
        if last > first:
            left_out = Message(USER, f"[{last - first} earlier turns are left out here]")
            sent.append({**left_out.to_json(), "left_out": [turns[first].start, turns[last - 1].stop]})
        sent += [i for turn in turns[last:] for i in turn]
        return Prompt(tuple(messages[i] if isinstance(i, int) else decode(Message, i) for i in sent), tuple(sent))

    def _widest_gap(self, messages: Sequence[Message], fixed: list[int], turns: list[range]) -> tuple[int, int]:
        """Return the turns to omit as a half-open range; the newest turn is never among them."""
        newest = len(turns) - 1
        least = self._count(self._assemble(messages, fixed, turns, (0, newest)).messages)
        room = max(0, self._budget - least) * _KEPT_SHARE
        sizes = [self._count([messages[i] for i in turn]) for turn in turns]
        first, used = 0, 0
        while first < newest and used + sizes[first] <= HEAD_SHARE * room:
            used += sizes[first]
            first += 1
        last = newest
        while last > first and used + sizes[last - 1] <= room:
            used += sizes[last - 1]
            last -= 1
        # Messages may take more tokens together than the sum of each alone.
        while (first, last) != (0, newest) and not self._fits(self._assemble(messages, fixed, turns, (first, last))):
            first, last = (first, last + 1) if last < newest else (first - 1, last)
        return first, last

    def _shorten(self, prompt: Prompt, length: int) -> Prompt:
        """Shorten the long strings of the last `length` messages in the middle until the prompt fits."""
        before, newest = prompt.messages[:-length], prompt.messages[-length:]
        low, high = 0, max(size for m in newest for size in _sizes(m))
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._count([*before, *(_shorten_message(m, middle) for m in newest)]) <= self._budget
            low, high = (middle, high) if fits else (low, middle)
        short = [_shorten_message(m, low) for m in newest]
        if low < _MIN_CHARS or self._count([*before, *short]) > self._budget:
            raise ContextError(f"the task and the newest step do not fit into {self._budget} tokens")
        indices = prompt.sent[-length:]
        stand_ins = [
            index if new == old else {**new.to_json(), "shortened": index}
            for index, old, new in zip(indices, newest, short, strict=True)
        ]
        return Prompt((*before, *short), (*prompt.sent[:-length], *stand_ins))


def _turns(messages: Sequence[Message], start: int) -> list[range]:
    """Return the indices of each turn: a message of the assistant and those that follow it."""
    starts = [i for i in range(start, len(messages)) if messages[i].role == ASSISTANT]
    return [range(a, b) for a, b in pairwise([*starts, len(messages)])] if starts else []


def _sizes(message: Message) -> Iterator[int]:
    yield len(message.content)
    yield message.thought_chars
    yield from (len(c.raw) for c in message.tool_calls)


def _shorten_message(message: Message, max_chars: int) -> Message:
    calls = tuple(_shorten_call(c, max_chars) for c in message.tool_calls)
    # Reasoning blocks may be signed: they are sent unchanged, or not at all.
    thoughts = message.thoughts if message.thought_chars <= max_chars else {}
    return replace(message, content=elided(message.content, max_chars)[0], tool_calls=calls, thoughts=thoughts)


def _shorten_call(call: ToolCall, max_chars: int) -> ToolCall:
    if len(call.raw) <= max_chars:
        return call
    values = {k: elided(v, max_chars // 4)[0] if isinstance(v, str) else v for k, v in call.arguments.items()}
    raw = json.dumps(values)
    if not values or len(raw) > max_chars + 4 * _MIN_CHARS:
        values = {"left_out": elided(call.raw, max_chars // 4)[0]}
        raw = json.dumps(values)
    return replace(call, arguments=values, raw=raw)
