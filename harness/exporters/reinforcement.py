"""Formats for reinforcement: the canonical record, prompts for TRL's GRPOTrainer, and samples as slime takes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from harness.exporters.conversations import shown
from harness.exporters.imitation import NO_CALLS
from harness.exporters.leaving import LeftOutError
from harness.exporters.protocol import (
    BITS,
    IDS,
    JSON,
    NUMBER,
    NUMBERS,
    OBJECTS,
    TEXT,
    TEXTS,
    TRUTH,
    WHOLE,
    Choices,
    Format,
    Group,
    Row,
)
from harness.exporters.record import Record
from harness.exporters.tokens import Segment, segments, steps

_HALF_PRECISE = 13
"""Hexadecimal digits of numbers that stand for names: 52 bits, which a float holds exactly."""


def _records(group: Group, choices: Choices) -> Iterator[Row]:
    for record in group.records():
        yield dict(record.data)


def _prompts(group: Group, choices: Choices) -> Iterator[Row]:
    seen: set[bytes] = set()
    for record in group.records():
        prompt = shown(record.calls[0].prompt) if record.calls else []
        if not prompt:
            group.leave(record.id, LeftOutError(NO_CALLS))
            continue
        digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
        if digest in seen:
            group.leave(record.id, LeftOutError("its prompt is a row already"))
            continue
        seen.add(digest)
        told = record.data["task"]
        yield {
            "prompt": prompt,
            "task_id": record.data["task_id"],
            "role": record.data["role"],
            "repository": record.repository,
            "strategy": str(told.get("strategy", "")),
            "solve_rate": told.get("solve_rate"),
            "graded": told.get("graded"),
        }


def _samples(group: Group, choices: Choices) -> Iterator[Row]:
    for record in group.records():
        if not record.on_policy:
            group.leave(record.id, LeftOutError(_off_policy(record)))
            continue
        found = steps(record) if choices.samples == "step" else segments(record)
        many = sum(1 for _ in found) if choices.segment_reward != "full" else 0
        found = steps(record) if choices.samples == "step" else segments(record)
        for place, segment in enumerate(found):
            yield _sample(record, segment, place, _share(record.reward, place, many, choices.segment_reward))


def _off_policy(record: Record) -> str:
    if not record.calls:
        return NO_CALLS
    if record.is_demonstration:
        return "none of its replies was sampled: it is not on-policy"
    return "token ids or log-probabilities of its replies are not all there: it is not on-policy"


def _share(reward: float | None, place: int, many: int, how: str) -> float | None:
    if reward is None or how == "full":
        return reward
    return reward / many if how == "split" else reward if place == many - 1 else 0.0


def _sample(record: Record, segment: Segment, place: int, reward: float | None) -> Row:
    first = segment.prompt_len
    data = record.data
    return {
        "group_index": _number(data["group_id"]),
        "index": _number(f"{record.id}#{place}"),
        "rollout_id": _number(record.id),
        "prompt": shown(segment.calls[0].prompt),
        "tokens": segment.ids,
        "response": "\n".join(str(c.reply["content"]) for c in segment.calls),
        "response_length": len(segment.ids) - first,
        "label": data["task_id"],
        "reward": reward,
        "loss_mask": segment.mask[first:],
        "rollout_log_probs": segment.logprobs[first:],
        "status": data["status"],
        "remove_sample": False,
        "metadata": {
            "rollout_id": record.id,
            "task_id": data["task_id"],
            "role": data["role"],
            "model": data["policy"].get("model"),
            "repository": record.repository,
            "place": place,
            "calls": [c.i for c in segment.calls],
            "solve_rate": data["task"].get("solve_rate"),
        },
    }


def _number(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:_HALF_PRECISE], 16)


_CANONICAL: dict[str, Any] = {
    **dict.fromkeys(("schema", "rollout_id", "group_id", "task_id", "role"), TEXT),
    "attempt": WHOLE,
    **dict.fromkeys(("policy", "sampling", "task"), JSON),
    **dict.fromkeys(("tools", "messages", "calls"), OBJECTS),
    "status": TEXT,
    "exit_reason": TEXT,
    "reward": NUMBER,
    **dict.fromkeys(("reward_components", "verdict"), JSON),
    "flags": TEXTS,
    "patch": TEXT,
    "provenance": JSON,
}
ROLLOUTS = Format("rollouts", "this project: every other format is made of it", _CANONICAL, _records, rewarded=False)
GRPO = Format(
    "grpo",
    "TRL's GRPOTrainer and RLOOTrainer",
    {
        "prompt": OBJECTS,
        "task_id": TEXT,
        "role": TEXT,
        "repository": TEXT,
        "strategy": TEXT,
        "solve_rate": NUMBER,
        "graded": WHOLE,
    },
    _prompts,
    rewarded=False,
    notes=("Prompts alone: the rollout function or the environment plays and grades the task that task_id names.",),
)
SLIME_SAMPLES = Format(
    "slime-samples",
    "slime: Sample.from_dict takes a row",
    {
        "group_index": WHOLE,
        "index": WHOLE,
        "rollout_id": WHOLE,
        "prompt": OBJECTS,
        "tokens": IDS,
        "response": TEXT,
        "response_length": WHOLE,
        "label": TEXT,
        "reward": NUMBER,
        "loss_mask": BITS,
        "rollout_log_probs": NUMBERS,
        "status": TEXT,
        "remove_sample": TRUTH,
        "metadata": JSON,
    },
    _samples,
    notes=("Samples of one rollout share its rollout_id; loss_mask and rollout_log_probs are of the response alone.",),
)
