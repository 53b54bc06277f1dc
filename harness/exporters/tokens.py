"""Join calls with their tokens into sequences to train on, by prefix reconciliation.

A prompt that begins with all prompts and replies so far continues the segment: its new tokens came from tools and
templates and are not trained on; the reply after it is. A prompt that begins differently, because turns were omitted or
the text was tokenised in another way, starts a new segment. So each segment is a sequence exactly as the server saw it,
its tokens are those that were sampled, and each of them is trained on once. Nothing is encoded here: if the server did
not return its tokens, there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.exporters.model_calls import Call
from harness.exporters.record import Record

IGNORED = -100
"""The label that PyTorch's cross entropy, and so every trainer, ignores."""


@dataclass(slots=True)
class Segment:
    """One sequence; its lists have the same length."""

    ids: list[int]
    mask: list[int]
    """1 for sampled tokens that are trained on, else 0."""
    logprobs: list[float]
    """The server's log-probabilities of tokens that are trained on; 0 elsewhere."""
    prompt_len: int
    """Number of tokens before the first reply."""
    calls: list[Call] = field(default_factory=list)
    """The calls whose replies are in it."""

    @property
    def trained(self) -> int:
        """Number of tokens that are trained on."""
        return sum(self.mask)

    @property
    def labels(self) -> list[int]:
        """The ids of tokens that are trained on, `IGNORED` for the others; trainers shift them."""
        return [i if m else IGNORED for i, m in zip(self.ids, self.mask, strict=True)]

    def add(self, tail: tuple[int, ...] | list[int], call: Call) -> None:
        """Append the new tokens of a prompt, and the reply to it."""
        ids = call.token_ids or ()
        trained = int(call.trainable)
        logprobs = call.logprobs if call.trainable and call.logprobs is not None else (0.0,) * len(ids)
        self.ids += (*tail, *ids)
        self.mask += [0] * len(tail) + [trained] * len(ids)
        self.logprobs += (*(0.0,) * len(tail), *logprobs)
        self.calls.append(call)


def segments(record: Record) -> Iterator[Segment]:
    """Yield the sequences of a rollout that have tokens to train on; calls without tokens are omitted."""
    current: Segment | None = None
    for call, prompt in record.prompts():
        if prompt is None or call.suffix is None:
            continue
        if current is not None and call.prefix_len == len(current.ids):
            current.add(call.suffix, call)
            continue
        if current is not None and current.trained:
            yield current
        current = Segment([], [], [], len(prompt))
        current.add(prompt, call)
    if current is not None and current.trained:
        yield current


def steps(record: Record) -> Iterator[Segment]:
    """Yield one sequence for each reply that is trained on: its exact prompt, and the reply."""
    for call, prompt in record.prompts():
        if prompt is None or not call.trainable or not call.token_ids:
            continue
        step = Segment([], [], [], len(prompt))
        step.add(prompt, call)
        yield step
