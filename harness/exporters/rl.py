"""Define formats for reinforcement learning: canonical records, prompts for TRL's GRPOTrainer, samples for slime."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from harness.exporters.conversations import first_prompt, shown
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
from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.tokens import Segment, segments, steps

_ID_HEX_DIGITS = 13
"""Digits of the numeric ids of names: 52 bits, which a float represents exactly."""


def _records(group: Group, choices: Choices) -> Iterator[Row]:
    for record in group.records():
        yield dict(record.data)


def _prompts(group: Group, choices: Choices) -> Iterator[Row]:
    seen: set[bytes] = set()
    for record in group.records():
        prompt = shown(first_prompt(record))
        if not prompt:
            group.leave(record.id, SkippedError(SkipCode.NO_CALLS))
            continue
        digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
        if digest in seen:
            group.leave(record.id, SkippedError(SkipCode.SAME_PROMPT))
            continue
        seen.add(digest)
        task = record.data["task"]
        yield {
            "prompt": prompt,
            "task_id": record.data["task_id"],
            "role": record.data["role"],
            "model": record.model,
            "repository": record.repository,
            "strategy": str(task.get("strategy", "")),
            "injector": str(task.get("injector", "")),
            "solve_rate": task.get("solve_rate"),
            "graded": task.get("graded"),
        }


def _samples(group: Group, choices: Choices) -> Iterator[Row]:
    for record in group.records():
        if not record.on_policy:
            group.leave(record.id, SkippedError(_off_policy(record)))
            continue
        samples = steps(record) if choices.samples == "step" else segments(record)
        count = sum(1 for _ in samples) if choices.segment_reward != "full" else 0
        samples = steps(record) if choices.samples == "step" else segments(record)
        for index, segment in enumerate(samples):
            yield _sample(record, segment, index, _share(record.reward, index, count, choices.segment_reward))


def _off_policy(record: Record) -> SkipCode:
    if not record.calls:
        return SkipCode.NO_CALLS
    if record.is_demonstration:
        return SkipCode.DEMONSTRATION
    return SkipCode.OFF_POLICY


def _share(reward: float | None, index: int, count: int, mode: str) -> float | None:
    if reward is None or mode == "full":
        return reward
    if mode == "split":
        return reward / count
    return reward if index == count - 1 else 0.0


def _sample(record: Record, segment: Segment, index: int, reward: float | None) -> Row:
    first = segment.prompt_len
    data = record.data
    return {
        "group_index": _number(data["group_id"]),
        "index": _number(f"{record.id}#{index}"),
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
            "model": record.model,
            "repository": record.repository,
            "place": index,
            "calls": [c.i for c in segment.calls],
            "solve_rate": data["task"].get("solve_rate"),
        },
    }


def _number(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:_ID_HEX_DIGITS], 16)


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
ROLLOUTS = Format(
    "rollouts", "this project: every other format of rollouts is derived from it", _CANONICAL, _records, rewarded=False
)
GRPO = Format(
    "grpo",
    "TRL's GRPOTrainer and RLOOTrainer",
    {
        "prompt": OBJECTS,
        "task_id": TEXT,
        "role": TEXT,
        "model": TEXT,
        "repository": TEXT,
        "strategy": TEXT,
        "injector": TEXT,
        "solve_rate": NUMBER,
        "graded": WHOLE,
    },
    _prompts,
    rewarded=False,
    notes=("Prompts only: the rollout function or the environment runs and grades the task of task_id.",),
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
    notes=("Samples of one rollout share its rollout_id; loss_mask and rollout_log_probs cover the response only.",),
)
