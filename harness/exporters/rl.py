"""Define formats for reinforcement learning: canonical records, prompts for TRL, verl and SkyRL, samples for slime."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from harness.datasets.instance import Instance
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
    statement_of,
)
from harness.exporters.record import Record
from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.tokens import Segment, segments, steps
from harness.records.messages import SYSTEM, USER
from harness.solvers.model import solver_system

_ID_HEX_DIGITS = 13
"""Digits of the numeric ids of names: 52 bits, which a float represents exactly."""
VERL_AGENT = "ssr_agent"
"""The name under which our agent loop is registered in verl."""
SKYRL_ENVIRONMENT = "ssr"
"""The name under which our environment is registered in SkyRL-gym."""


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


def _prompt_of(instance: Instance, choices: Choices) -> Row:
    """Return the system prompt of our solvers and the statement: the folder and the tests are known to the episode."""
    prompt = [{"role": SYSTEM, "content": solver_system()}, {"role": USER, "content": statement_of(instance)}]
    unknown = {"model": "", "repository": instance.repo, "strategy": "", "injector": "", "solve_rate": None}
    return {"prompt": prompt, "task_id": instance.id, "role": "solver", **unknown, "graded": 0}


def verl_row(task_id: str) -> Row:
    """Return the row of a task for verl, whose prompt is only the id: the episode describes the task."""
    return {
        "data_source": "ssr",
        "agent_name": VERL_AGENT,
        "prompt": [{"role": USER, "content": task_id}],
        "reward_model": {"style": "rule", "ground_truth": task_id},
        "extra_info": {"index": _number(task_id), "task": task_id},
    }


def _verl_prompts(group: Group, choices: Choices) -> Iterator[Row]:
    assert group.task is not None
    yield verl_row(group.task.id)


def skyrl_row(task_id: str) -> Row:
    """Return the row of a task for SkyRL, whose environment gets `task` and begins with messages of its own."""
    return {"prompt": [{"role": USER, "content": task_id}], "env_class": SKYRL_ENVIRONMENT, "task": task_id}


def _skyrl_prompts(group: Group, choices: Choices) -> Iterator[Row]:
    assert group.task is not None
    yield skyrl_row(group.task.id)


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
    "rollouts",
    "this project: every other format of rollouts is derived from it",
    _CANONICAL,
    _records,
    rewarded=False,
    facts=("task",),
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
    _prompt_of,
    names_tests=False,
    rewarded=False,
    notes=("Prompts only: the rollout function or the environment runs and grades the task of task_id.",),
)
VERL_PROMPTS = Format(
    "verl-prompts",
    "verl, with the agent loop of harness.environments.adapters.verl",
    {"data_source": TEXT, "agent_name": TEXT, "prompt": OBJECTS, "reward_model": JSON, "extra_info": JSON},
    _verl_prompts,
    lambda instance, choices: verl_row(instance.id),
    names_tests=False,
    of_tasks=True,
    facts=("extra_info",),
    notes=("verl reads JSON lines; from parquet it would read objects as strings.",),
)
SKYRL_PROMPTS = Format(
    "skyrl-prompts",
    "SkyRL, with the environment of harness.environments.adapters.skyrl",
    {"prompt": OBJECTS, "env_class": TEXT, "task": TEXT},
    _skyrl_prompts,
    lambda instance, choices: skyrl_row(instance.id),
    names_tests=False,
    of_tasks=True,
    notes=("SkyRL reads a file of JSON lines; from parquet it would read messages as strings.",),
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
    facts=("metadata",),
    notes=("Samples of one rollout share its rollout_id; loss_mask and rollout_log_probs cover the response only.",),
)
