"""Define formats for imitation by TRL's SFTTrainer: conversations, tokens with labels, and single steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.exporters.conversations import conversation, shown
from harness.exporters.protocol import IDS, NUMBER, OBJECTS, TEXT, TRUTH, WHOLE, Choices, Format, Group, Row
from harness.exporters.record import Record
from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.tokens import segments

ABOUT = {
    "rollout_id": TEXT,
    "task_id": TEXT,
    "role": TEXT,
    "model": TEXT,
    "repository": TEXT,
    "strategy": TEXT,
    "reward": NUMBER,
    "solve_rate": NUMBER,
    "on_policy": TRUTH,
}

SERVED = "served_model"
"""The column with the id of the model on its server, if the name of the model is a server's URL."""


def about(record: Record) -> Row:
    """Return the columns for the origin of a row."""
    data, task = record.data, record.data["task"]
    return {
        "rollout_id": record.id,
        "task_id": data["task_id"],
        "role": data["role"],
        "model": record.model,
        "repository": record.repository,
        "strategy": str(task.get("strategy", "")),
        "reward": record.reward,
        "solve_rate": task.get("solve_rate"),
        "on_policy": record.on_policy,
    }


def tools_of(record: Record) -> list[Any]:
    """Return the tools that the model was offered."""
    return list(record.data["tools"])


def _each(group: Group) -> Iterator[Record]:
    """Yield the records with model calls, and report the others."""
    for record in group.records():
        if record.calls:
            yield record
        else:
            group.leave(record.id, SkippedError(SkipCode.NO_CALLS))


def _conversations(group: Group, choices: Choices) -> Iterator[Row]:
    for record in _each(group):
        messages = conversation(record)
        sampled = {c.trainable for c in record.calls}
        if messages is None:
            group.leave(record.id, SkippedError(SkipCode.TURNS_OMITTED))
        elif messages[0]["role"] == "assistant":
            group.leave(record.id, SkippedError(SkipCode.FIRST_PROMPT_EMPTY))
        elif len(sampled) > 1:
            group.leave(record.id, SkippedError(SkipCode.PARTLY_TRAINABLE))
        elif sum(m["role"] == "assistant" for m in messages) != len(record.calls):
            group.leave(record.id, SkippedError(SkipCode.FOREIGN_MESSAGES))
        elif any(c.is_malformed for c in record.calls):
            group.leave(record.id, SkippedError(SkipCode.MALFORMED_IN_CONVERSATION))
        elif any(c.is_cut for c in record.calls):
            group.leave(record.id, SkippedError(SkipCode.CUT_IN_CONVERSATION))
        else:
            yield {"messages": shown(messages), "tools": tools_of(record), **about(record)}


def _tokens(group: Group, choices: Choices) -> Iterator[Row]:
    for record in _each(group):
        count = 0
        for count, segment in enumerate(segments(record), 1):
            ids = {"input_ids": segment.ids, "labels": segment.labels, "segment": count - 1}
            yield {**ids, SERVED: record.served_model, **about(record)}
        if not count:
            has_ids = any(c.has_ids for c in record.calls)
            group.leave(record.id, SkippedError(SkipCode.NOT_SAMPLED if has_ids else SkipCode.NO_IDS))


def _steps(group: Group, choices: Choices) -> Iterator[Row]:
    for record in _each(group):
        for call in record.calls:
            name = f"{record.id}, call {call.i}"
            if not call.prompt:
                group.leave(name, SkippedError(SkipCode.PROMPT_EMPTY))
            elif call.is_malformed:
                group.leave(name, SkippedError(SkipCode.MALFORMED))
            elif call.is_cut:
                group.leave(name, SkippedError(SkipCode.CUT))
            elif not call.trainable and not record.is_demonstration:
                group.leave(name, SkippedError(SkipCode.NOT_TRAINABLE))
            else:
                yield {
                    "prompt": shown(call.prompt),
                    "completion": shown([call.reply]),
                    "tools": tools_of(record),
                    "step": call.i,
                    **about(record),
                }


SFT = Format(
    "sft",
    "TRL's SFTTrainer, prime-rl",
    {"messages": OBJECTS, "tools": OBJECTS, **ABOUT},
    _conversations,
    imitates=True,
    notes=(
        "Train with assistant_only_loss=True; otherwise the model also learns tool output.",
        "SFTTrainer truncates rows to max_length=1024 tokens by default.",
    ),
)
SFT_TOKENS = Format(
    "sft-tokens",
    "TRL's SFTTrainer, by its columns input_ids and labels",
    {"input_ids": IDS, "labels": IDS, "segment": WHOLE, SERVED: TEXT, **ABOUT},
    _tokens,
    imitates=True,
    notes=(
        "The token ids come from the server: they are valid only for the tokenizer of the served model.",
        "The served model is served_model, or model if that is empty.",
        "SFTTrainer truncates rows to max_length=1024 tokens by default.",
    ),
)
BC = Format(
    "bc",
    "TRL's SFTTrainer, by its columns prompt and completion",
    {"prompt": OBJECTS, "completion": OBJECTS, "tools": OBJECTS, "step": WHOLE, **ABOUT},
    _steps,
    imitates=True,
    notes=("The loss covers only the completion: one reply. The size of all rows grows with the square of the turns.",),
)
