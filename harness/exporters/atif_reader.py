"""Make canonical records of trajectories in ATIF 1.0 to 1.8, of whichever agent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.exporters.atif import AGENT, AGENT_VERSION, OBSERVATION_ONLY
from harness.exporters.record_builder import common_prefix
from harness.exporters.skipped import SkipCode, SkippedError, damaged
from harness.records.harbor_trials import RolloutDetail, Trial
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER
from harness.records.trajectory import SCHEMA, ExitReason
from pytest_ssr.records.decoding import Natural, NonEmpty, of_shape

_ROLES = {"system": SYSTEM, "user": USER, "agent": ASSISTANT}
_VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
_ID_DIGITS = 24
Omission = tuple[str, SkippedError]
"""The name of a part that is left out, and the reason."""
Ids = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Part:
    type: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class _ToolCall:
    tool_call_id: str
    function_name: str
    arguments: Mapping[str, Any]
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Subagent:
    """A reference to the trajectory of a subagent, or the trajectory itself."""

    trajectory_id: str | None = None
    trajectory_path: str | None = None

    @property
    def name(self) -> str:
        return self.trajectory_id or self.trajectory_path or "without an id"


@dataclass(frozen=True, slots=True)
class _ObservationResult:
    source_call_id: str | None = None
    content: str | tuple[_Part, ...] | None = None
    subagent_trajectory_ref: tuple[_Subagent, ...] | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Observation:
    results: tuple[_ObservationResult, ...]


@dataclass(frozen=True, slots=True)
class _Metrics:
    prompt_tokens: Natural | None = None
    completion_tokens: Natural | None = None
    cached_tokens: Natural | None = None
    cost_usd: float | None = None
    prompt_token_ids: Ids = None
    completion_token_ids: Ids = None
    logprobs: tuple[float, ...] | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    step_id: int
    source: Literal["system", "user", "agent"]
    message: str | tuple[_Part, ...]
    reasoning_content: str | None = None
    tool_calls: tuple[_ToolCall, ...] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: Natural | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether a model was asked for this reply, in this trajectory."""
        return self.source == "agent" and self.llm_call_count != 0 and not self.is_copied_context


@dataclass(frozen=True, slots=True)
class _Agent:
    name: str
    version: str = ""
    model_name: str | None = None
    tool_definitions: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class _Trajectory:
    schema_version: str
    agent: _Agent
    steps: tuple[_Step, ...]
    session_id: str | None = None
    trajectory_id: NonEmpty | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: tuple[_Subagent, ...] | None = None
    extra: Mapping[str, Any] | None = None


def is_atif(data: Mapping[str, Any]) -> bool:
    """Return whether a JSON object claims to be a trajectory of ATIF, of whichever version."""
    return str(data.get("schema_version")).startswith("ATIF-")


def record_data(
    trajectories: Sequence[Mapping[str, Any]], trial: Trial | None = None, *, name: str = "", is_cut_off: bool = False
) -> tuple[dict[str, Any], list[Omission]]:
    """Return the record of a rollout, to be validated by `Record.of`, and what is left out of it.

    trajectories: one, and those that continue it. trial: its grade. name: of the rollout, if neither the trajectory nor
    the trial has an id. is_cut_off: whether the rollout has not finished. Raises SkippedError if one is damaged.
    """
    try:
        parts = [of_shape(_Trajectory, data) for data in trajectories]
    except ValueError as error:
        raise damaged(f"it is not a trajectory: {error}") from None
    if not all(part.schema_version in _VERSIONS for part in parts):
        raise damaged("it is not a trajectory of ATIF 1.0 to 1.8")
    first = parts[0]
    extra = first.extra or {}
    is_own = extra.get("schema") == SCHEMA
    conversion = _Conversion(is_own, trial.details if trial is not None else ())
    for number, part in enumerate(parts, 1):
        conversion.add(part, f"part {number}, " if number > 1 else "")
    if parts[-1].continued_trajectory_ref is not None:
        conversion.leave(parts[-1].continued_trajectory_ref, SkipCode.CONTINUATION)
    opening = json.dumps(conversion.messages[: conversion.n_opening])
    model = (trial.model if trial is not None else "") or first.agent.model_name or first.agent.name
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "rollout_id": trial.id if trial else name or first.trajectory_id or _digest(json.dumps(trajectories)),
        "group_id": "",
        # Attempts at one task begin with the same messages.
        "task_id": trial.task if trial is not None else _digest(opening),
        "role": "solver",
        "attempt": 0,
        "policy": {"model": model, "version": None},
        "sampling": {},
        "task": {},
        "tools": [],
        "messages": [],
        "calls": [],
        "status": "aborted" if is_cut_off else "completed",
        "exit_reason": str(ExitReason.INTERRUPTED) if is_cut_off else "unknown",
        "reward": None,
        "reward_components": {},
        "verdict": {"resolved": None, "tests": None, "reason": "the trajectory has no reward", "infra": is_cut_off},
        "flags": [],
        "patch": None,
        "provenance": {
            "atif": first.schema_version,
            AGENT: first.agent.name,
            AGENT_VERSION: first.agent.version,
            **({"session_id": first.session_id} if first.session_id is not None else {}),
            **({"trial": trial.name} if trial is not None else {}),
        },
    }
    data["group_id"] = f"{data['task_id']}#{model}"
    if is_own:
        data |= {key: extra[key] for key in data if key in extra}
    if trial is not None:
        data |= _grade(trial)
    data |= {
        "tools": [dict(tool) for tool in first.agent.tool_definitions or ()],
        "messages": conversion.messages,
        "calls": conversion.calls,
    }
    return data, [(f"{data['rollout_id']}, {part}", SkippedError(code)) for part, code in conversion.omissions]


def _grade(trial: Trial) -> dict[str, Any]:
    """Return the fields of a record that come from the grade of a trial."""
    graded = trial.reward is not None
    status = "aborted" if not graded else "truncated" if trial.limit else "failed" if trial.exception else "completed"
    return {
        "status": status,
        "exit_reason": trial.limit or trial.exception or (str(ExitReason.SUBMITTED) if graded else "no-reward"),
        "reward": trial.reward,
        "reward_components": {"harbor": trial.reward} if graded else {},
        "verdict": {
            "resolved": trial.resolved,
            "tests": trial.resolved,
            "reason": trial.exception or ("graded by Harbor" if graded else "the trial has no reward"),
            "infra": not graded,
            "rewards": dict(trial.rewards),
        },
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]


@dataclass(slots=True)
class _Conversion:
    """The messages and calls of a rollout, while its steps are read."""

    is_own: bool
    """Whether `ssr export` wrote it: `extra` then holds what ATIF cannot express."""
    details: Sequence[RolloutDetail]
    """Tokens that an agent reported apart from its trajectory; the first is of the main conversation."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    omissions: list[tuple[str, SkipCode]] = field(default_factory=list)
    n_opening: int = 0
    """Number of messages before the first reply."""
    _previous: Sequence[int] = ()

    def leave(self, name: str, code: SkipCode) -> None:
        self.omissions.append((name, code))

    def add(self, part: _Trajectory, label: str) -> None:
        """Add the steps of a trajectory; its prompts begin with its first message."""
        start, has_media = len(self.messages), False
        subagents = {subagent.name for subagent in part.subagent_trajectories or ()}
        reported = _reported_ids(part, self.details) if not start else iter(())
        for step in part.steps:
            name = f"{label}step {step.step_id}"
            content, is_media = _text(step.message)
            if step.source == "agent":
                ids = next(reported, None) if step.is_sampled else None
                if step.is_copied_context:
                    self.leave(name, SkipCode.COPIED_CONTEXT)
                elif has_media or is_media:
                    self.leave(name, SkipCode.MEDIA)
                elif not self.is_own or step.metrics is not None:
                    self.calls.append(self._call(step, start, ids))
            elif is_media:
                self.leave(name, SkipCode.MEDIA)
            has_media |= is_media
            if not (self.is_own and step.extra and step.extra.get(OBSERVATION_ONLY)):
                self.messages.append(self._message(step, content))
            for result in step.observation.results if step.observation is not None else ():
                subagents |= {subagent.name for subagent in result.subagent_trajectory_ref or ()}
                content, is_media = _text(result.content)
                if is_media and not has_media:
                    self.leave(name, SkipCode.MEDIA)
                has_media |= is_media
                if result.content is not None:
                    self.messages.append(self._observation(step, result, content))
            if not self.calls:
                self.n_opening = len(self.messages)
        for subagent in sorted(subagents):
            self.leave(f"{label}subagent {subagent}", SkipCode.SUBAGENT)

    def _message(self, step: _Step, content: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": _ROLES[step.source], "content": content}
        if step.reasoning_content:
            message["reasoning_content"] = step.reasoning_content
        if step.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.tool_call_id,
                    "type": "function",
                    "function": {
                        "name": call.function_name,
                        "arguments": dict(call.arguments),
                        **((call.extra or {}) if self.is_own else {}),
                    },
                }
                for call in step.tool_calls
            ]
        return {**message, **((step.extra or {}) if self.is_own else {})}

    def _observation(self, step: _Step, result: _ObservationResult, content: str) -> dict[str, Any]:
        """Return the message of a result; without a call that it belongs to, the environment's answer is the user's."""
        if self.is_own:
            return {"role": TOOL, "content": content, **(result.extra or {})}
        names = {call.tool_call_id: call.function_name for call in step.tool_calls or ()}
        if result.source_call_id not in names:
            return {"role": USER, "content": content}
        name, id_ = names[result.source_call_id], result.source_call_id
        return {"role": TOOL, "content": content, "name": name, "tool_call_id": id_}

    def _call(self, step: _Step, start: int, reported: tuple[Ids, Ids, Any] | None) -> dict[str, Any]:
        """Return the call of a reply, whose prompt consists of all messages since `start`."""
        metrics, index = step.metrics or _Metrics(), len(self.messages)
        prompt, ids, logprobs = reported or _ids(metrics)
        if not self.is_own and (step.llm_call_count or 1) > 1:
            # They are of several calls, and no one knows which part of the message is whose.
            prompt = ids = logprobs = None
        prefix, suffix = 0, None
        if prompt and ids is not None:
            prefix = common_prefix(self._previous, prompt)
            suffix = list(prompt[prefix:])
            self._previous = (*prompt, *ids)
        foreign: dict[str, Any] = {
            "i": len(self.calls),
            "n_prompt_messages": index - start,
            **({"sent": [[start, index]] if index > start else []} if start else {}),
            "assistant_index": index,
            "finish_reason": "",
            "trainable": step.is_sampled,
            "cached": False,
            "usage": {
                "prompt_tokens": metrics.prompt_tokens or 0,
                "completion_tokens": metrics.completion_tokens or 0,
                "cached_tokens": metrics.cached_tokens or 0,
                "estimated": False,
            },
            "latency_s": 0.0,
            "request_id": "",
        }
        return {
            **(metrics.extra or {} if self.is_own else foreign),
            "prefix_len": prefix,
            "prompt_suffix_ids": suffix,
            "token_ids": None if ids is None else list(ids),
            "logprobs": None if logprobs is None else list(logprobs),
            "cost_usd": metrics.cost_usd,
        }


def _text(content: str | Sequence[_Part] | None) -> tuple[str, bool]:
    """Return the text of a message, and whether it has other parts."""
    if content is None or isinstance(content, str):
        return content or "", False
    return "\n".join(p.text or "" for p in content if p.type == "text"), any(p.type != "text" for p in content)


def _ids(metrics: _Metrics) -> tuple[Ids, Ids, tuple[float, ...] | None]:
    return metrics.prompt_token_ids, metrics.completion_token_ids, metrics.logprobs


def _reported_ids(part: _Trajectory, details: Sequence[RolloutDetail]) -> Iterator[tuple[Ids, Ids, Any]]:
    """Yield the tokens of each reply as the agent reported them, if the trajectory has none and the turns agree."""
    sampled = [step for step in part.steps if step.is_sampled]
    if not details or any(s.metrics and s.metrics.completion_token_ids for s in sampled):
        return
    first = details[0]
    logprobs = first.logprobs or (None,) * len(sampled)
    if len(first.prompt_token_ids) == len(first.completion_token_ids) == len(logprobs) == len(sampled):
        yield from zip(first.prompt_token_ids, first.completion_token_ids, logprobs, strict=True)
