"""What of a rollout a model is sent: all of it while that fits, else its beginning and its end.

The system message, the task and the newest turn are always sent. Of what room is left, the oldest turns get a share of
30 % and the newest the rest; turns are sent whole, and one line says how many are left out between them. Once turns
are left out, some more are than there had to be: then many steps go by until the next cut, and each of these prompts
begins with the one before it, as caches and training on whole segments want it. Where the newest turn does not fit on
its own, its long texts lose their middles. It is the same in training and in evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from harness.messages import ASSISTANT, USER, Message, ToolCall
from harness.trajectory import Sent
from pytest_ssr.errors import ContextError

HEAD_SHARE = 0.3
_KEPT_SHARE = 0.75
_FEWEST_CHARS, _MARK_CHARS = 40, 50
"""A text that has been elided once is not again: what stands for its middle is no longer than the second."""
Count = Callable[[Sequence[Message]], int]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages that are sent."""

    messages: tuple[Message, ...]
    """In order."""
    sent: tuple[Sent, ...]
    """The same by their places in the rollout; one that stands in for others is there as it is."""


def elided(text: str, most: int) -> tuple[str, int]:
    """Return a text of about `most` characters at the longest, head and tail kept, and how many are left out."""
    if len(text) <= most + _MARK_CHARS:
        return text, 0
    half = most // 2
    gone = len(text) - 2 * half
    return f"{text[:half]}\n[... {gone} characters left out ...]\n{text[len(text) - half :]}", gone


class Window(Protocol):
    """Decides what is sent."""

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return what to send of these messages."""

    def tighten(self) -> None:
        """Send less from now on."""


class ContextWindow:
    """Decides, call after call of one rollout, what is sent."""

    def __init__(self, budget: int, count: Count) -> None:
        """budget: tokens of a prompt. count: tokens of messages as a prompt; more messages are never fewer."""
        self._budget, self._count = budget, count
        self._gap = (0, 0)

    def tighten(self) -> None:
        """Send a fifth less from now on: the server counts more tokens than we do."""
        self._budget = self._budget * 4 // 5

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Return what to send; raises ContextError when not even what has to be sent fits."""
        start = next((i for i, m in enumerate(messages) if m.role == ASSISTANT), len(messages))
        turns = _turns(messages, start)
        fixed = list(range(start))
        whole = self._assembled(messages, fixed, turns, self._gap)
        if self._fits(whole):
            return whole
        if not turns:
            raise ContextError(f"the task alone does not fit into {self._budget} tokens")
        self._gap = self._widest_gap(messages, fixed, turns)
        cut = self._assembled(messages, fixed, turns, self._gap)
        return cut if self._fits(cut) else self._shortened(cut, len(turns[-1]))

    def _fits(self, prompt: Prompt) -> bool:
        return self._count(prompt.messages) <= self._budget

    def _assembled(
        self, messages: Sequence[Message], fixed: list[int], turns: list[range], gap: tuple[int, int]
    ) -> Prompt:
        first, last = gap
        sent: list[Sent] = [*fixed, *(i for turn in turns[:first] for i in turn)]
        if last > first:
            left_out = Message(USER, f"[{last - first} earlier turns are left out here]")
            sent.append({**left_out.to_json(), "left_out": [turns[first].start, turns[last - 1].stop]})
        sent += [i for turn in turns[last:] for i in turn]
        return Prompt(tuple(messages[i] if isinstance(i, int) else Message.from_json(i) for i in sent), tuple(sent))

    def _widest_gap(self, messages: Sequence[Message], fixed: list[int], turns: list[range]) -> tuple[int, int]:
        """Return which turns to leave out: first and past the last; the newest is never among them."""
        newest = len(turns) - 1
        least = self._count(self._assembled(messages, fixed, turns, (0, newest)).messages)
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
        # What messages take together may be more than what each of them takes.
        while (first, last) != (0, newest) and not self._fits(self._assembled(messages, fixed, turns, (first, last))):
            first, last = (first, last + 1) if last < newest else (first - 1, last)
        return first, last

    def _shortened(self, prompt: Prompt, length: int) -> Prompt:
        """Take the middles out of the long texts of the last `length` messages until all fits."""
        before, newest = prompt.messages[:-length], prompt.messages[-length:]
        low, high = 0, max(size for m in newest for size in _sizes(m))
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._count([*before, *(_shorter(m, middle) for m in newest)]) <= self._budget
            low, high = (middle, high) if fits else (low, middle)
        short = [_shorter(m, low) for m in newest]
        if low < _FEWEST_CHARS or self._count([*before, *short]) > self._budget:
            raise ContextError(f"the task and the newest step do not fit into {self._budget} tokens")
        places = prompt.sent[-length:]
        stands_in = [
            place if new == old else {**new.to_json(), "shortened": place}
            for place, old, new in zip(places, newest, short, strict=True)
        ]
        return Prompt((*before, *short), (*prompt.sent[:-length], *stands_in))


def _turns(messages: Sequence[Message], start: int) -> list[range]:
    """Return the places of each turn: a message of the assistant and what follows it."""
    starts = [i for i in range(start, len(messages)) if messages[i].role == ASSISTANT]
    return [range(a, b) for a, b in pairwise([*starts, len(messages)])] if starts else []


def _sizes(message: Message) -> Iterator[int]:
    yield len(message.content)
    yield message.thought_chars
    yield from (len(c.raw) for c in message.tool_calls)


def _shorter(message: Message, most: int) -> Message:
    calls = tuple(_shorter_call(c, most) for c in message.tool_calls)
    # Thoughts may be signed: they are sent as they are, or not at all.
    thoughts = message.thoughts if message.thought_chars <= most else {}
    return replace(message, content=elided(message.content, most)[0], tool_calls=calls, thoughts=thoughts)


def _shorter_call(call: ToolCall, most: int) -> ToolCall:
    if len(call.raw) <= most:
        return call
    texts = {k: elided(v, most // 4)[0] if isinstance(v, str) else v for k, v in call.arguments.items()}
    raw = json.dumps(texts)
    if not texts or len(raw) > most + 4 * _FEWEST_CHARS:
        texts = {"left_out": elided(call.raw, most // 4)[0]}
        raw = json.dumps(texts)
    return replace(call, arguments=texts, raw=raw)
