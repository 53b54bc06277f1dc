"""Write rollouts as trajectories of ATIF 1.8, the Agent Trajectory Interchange Format of Harbor.

ATIF forbids unknown fields, so everything that is ours is in `extra`: at the root the record without its messages and
calls, in the metrics of a step the call without its tokens. `atif_reader` makes the same record of it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.exporters.protocol import JSON, OBJECTS, TEXT, Choices, Format, Group, Row
from harness.exporters.record import Record
from harness.exporters.skipped import SkipCode, SkippedError, damaged
from harness.records.messages import ASSISTANT, TOOL
from pytest_ssr import __version__

OBSERVATION_ONLY = "observation_only"
"""In `extra` of a step that is no message: it holds what a tool returned before there was a message."""
AGENT, AGENT_VERSION = "agent", "agent_version"
"""The keys in a record's provenance for the agent of another program."""
_OUTSIDE_EXTRA = ("tools", "messages", "calls")
_OUTSIDE_CALLS = ("prompt_suffix_ids", "token_ids", "logprobs", "cost_usd")


def _trajectories(group: Group, choices: Choices) -> Iterator[Row]:
    for record in group.records():
        if not record.data["messages"]:
            group.leave(record.id, SkippedError(SkipCode.NO_CALLS))
            continue
        try:
            yield trajectory(record)
        except SkippedError as error:
            group.leave(record.id, error)


def trajectory(record: Record) -> Row:
    """Return the trajectory of a record; raises SkippedError if two of its calls have the same reply."""
    data = record.data
    metrics = _metrics(record)
    steps: list[dict[str, Any]] = []
    for index, message in enumerate(data["messages"]):
        if message["role"] == TOOL:
            if not steps:
                steps.append({"step_id": 1, "source": "system", "message": "", "extra": {OBSERVATION_ONLY: True}})
            _observe(steps[-1], message)
            continue
        step = {"step_id": len(steps) + 1, **_step(message)}
        if index in metrics:
            step["metrics"] = metrics[index]
        steps.append(step)
    provenance = data["provenance"]
    usages = [call["usage"] for call in data["calls"]]
    costs = [call.get("cost_usd") for call in data["calls"]]
    totals = {
        f"total_{name}_tokens": sum(int(usage.get(f"{name}_tokens") or 0) for usage in usages)
        for name in ("prompt", "completion", "cached")
    }
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": record.id,
        "trajectory_id": record.id,
        "agent": _given(
            name=str(provenance.get(AGENT) or "pytest-ssr"),
            version=str(provenance.get(AGENT_VERSION) or __version__),
            model_name=record.model or None,
            tool_definitions=list(data["tools"]) or None,
        ),
        "steps": steps,
        "final_metrics": {
            **totals,
            **({"total_cost_usd": sum(costs)} if costs and None not in costs else {}),
            "total_steps": len(steps),
        },
        "extra": {name: value for name, value in data.items() if name not in _OUTSIDE_EXTRA},
    }


def _metrics(record: Record) -> dict[int, dict[str, Any]]:
    """Return the metrics of each call, by the index of its reply."""
    metrics: dict[int, dict[str, Any]] = {}
    for item, (_, prompt) in zip(record.data["calls"], record.prompts(), strict=True):
        usage, index = item["usage"], item["assistant_index"]
        if metrics and index <= max(metrics):
            raise damaged("its calls are not in the order of their replies")
        metrics[index] = _given(
            **{name: usage.get(name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")},
            cost_usd=item.get("cost_usd"),
            prompt_token_ids=prompt,
            completion_token_ids=item.get("token_ids"),
            logprobs=item.get("logprobs"),
            extra={name: value for name, value in item.items() if name not in _OUTSIDE_CALLS},
        )
    return metrics


def _step(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] != ASSISTANT:
        return _given(source=message["role"], message=message["content"], extra=_rest(message) or None)
    calls = [
        _given(
            tool_call_id=call["id"],
            function_name=call["function"]["name"],
            arguments=call["function"]["arguments"],
            extra={n: v for n, v in call["function"].items() if n not in ("name", "arguments")} or None,
        )
        for call in message.get("tool_calls", ())
    ]
    return _given(
        source="agent",
        message=message["content"],
        reasoning_content=message.get("reasoning_content"),
        tool_calls=calls or None,
        extra=_rest(message, "reasoning_content", "tool_calls") or None,
    )


def _observe(step: dict[str, Any], message: Mapping[str, Any]) -> None:
    """Add the output of a tool to a step; its id may be that of an earlier call."""
    ids = [call["tool_call_id"] for call in step.get("tool_calls", ())]
    result = _given(
        source_call_id=message.get("tool_call_id") if message.get("tool_call_id") in ids else None,
        content=message["content"],
        extra=_rest(message),
    )
    step.setdefault("observation", {"results": []})["results"].append(result)


def _rest(message: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in ("role", "content", *names)}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


ATIF = Format(
    "atif",
    "Harbor's viewer and what reads its trajectories",
    {
        **dict.fromkeys(("schema_version", "session_id", "trajectory_id"), TEXT),
        "agent": JSON,
        "steps": OBJECTS,
        **dict.fromkeys(("final_metrics", "extra"), JSON),
    },
    _trajectories,
    rewarded=False,
    facts=("extra", "task"),
    notes=("A step holds all tokens of its prompt, so the size of a row grows with the square of the turns.",),
)
