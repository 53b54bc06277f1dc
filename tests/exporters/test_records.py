"""The canonical record: its fields, and that it rejects damaged and hostile data."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_parts import played, record, windowed

from harness.exporters.conversations import conversation, shown
from harness.exporters.record import Record
from harness.exporters.record_builder import RolloutContext, record_of
from harness.exporters.skipped import SkippedError
from harness.records.messages import ASSISTANT, TOOL, Message, ToolCall, Usage
from harness.records.trajectory import ExitReason, Journal, ModelCall, Trajectory


def json_record(**context: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(record(**context).data))
    return data


def test_a_record_round_trips_through_json() -> None:
    first = record()
    again = Record.of(json_record())
    assert again == first
    assert again.data["calls"][1]["prefix_len"] == len(played().calls[0].prompt_ids or ()) + len(
        played().calls[0].token_ids or ()
    )
    assert again.on_policy
    assert again.tokens == sum((first.calls[1].tokens,))
    assert [m["role"] for m in again.data["messages"]][-1] == TOOL
    assert again.data["messages"][3] == {
        "role": TOOL,
        "content": "output of ls",
        "name": "bash",
        "tool_call_id": "c0",
    }
    assert again.data["messages"][2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": {"command": "ls"}}


def test_an_infrastructure_failure_has_no_reward() -> None:
    for end in (ExitReason.INFRA, ExitReason.MODEL, ExitReason.INTERRUPTED):
        result = record(played(end=end), reward=-1.0)
        assert result.reward is None
        assert result.data["reward_components"] == {}
        assert result.data["status"] == "aborted"
    assert record(played(end=ExitReason.STEP_LIMIT), reward=-1.0).reward == -1.0
    data = json_record() | {"status": "aborted", "reward": 0.0}
    with pytest.raises(SkippedError, match="aborted but has a reward"):
        Record.of(data)


def test_a_prompt_that_omits_turns_is_recorded_exactly() -> None:
    result = record_of(windowed(), RolloutContext())
    assert "sent" not in result.data["calls"][1]
    assert result.data["calls"][2]["sent"][0] == [0, 1]
    assert result.data["calls"][2]["sent"][2] == [3, 5]
    assert [m["content"] for m in result.calls[2].prompt] == [
        "go",
        "[1 earlier turn is left out here]",
        "turn 1",
        "saw 1",
    ]
    assert result.calls[2].prompt[2]["reasoning_content"] == "hm"
    assert conversation(result) is None
    assert Record.of(json.loads(json.dumps(result.data))) == result


def test_a_malformed_call_is_shown_as_the_server_takes_it() -> None:
    result = record_of(windowed(), RolloutContext())
    assert [c.is_malformed for c in result.calls] == [True, False, False]
    (message,) = shown([result.data["messages"][1]])
    assert message["tool_calls"] == [
        {"id": "x", "type": "function", "function": {"name": "bash", "arguments": {"malformed": "{oh"}}}
    ]


def test_an_observation_has_the_name_of_its_own_tool_when_ids_repeat() -> None:
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    for name in ("bash", "submit"):
        journal.message(Message(ASSISTANT, "", (ToolCall.parse("c0", name, ""),)))
        journal.message(Message(TOOL, f"by {name}", tool_call_id="c0"))
    shorter = {**Message(TOOL, "b", tool_call_id="c0").to_json(), "shortened": 1}
    journal.call(ModelCall(0, (0, shorter), 2, "stop", Usage(), None, 0.0, "", None, None, None))
    result = record_of(journal.end(ExitReason.SUBMITTED), RolloutContext())
    assert [m.get("name") for m in result.data["messages"]] == [None, "bash", None, "submit"]
    assert result.calls[0].prompt[1] == {"role": TOOL, "content": "b", "name": "bash", "tool_call_id": "c0"}


DAMAGED = {
    "not an object": lambda d: [],
    "another schema": lambda d: d | {"schema": "ssr.rollout/2"},
    "no id": lambda d: d | {"rollout_id": ""},
    "a number for an id": lambda d: d | {"task_id": 7},
    "an unknown role": lambda d: d | {"role": "judge"},
    "a list for a role": lambda d: d | {"role": []},
    "a reward that is a string": lambda d: d | {"reward": "1"},
    "a reward that is NaN": lambda d: d | {"reward": float("nan")},
    "an infinite reward": lambda d: d | {"reward": float("inf")},
    "a huge number": lambda d: d | {"provenance": {"n": 10**30}},
    "a lone surrogate": lambda d: d | {"patch": "\ud800"},
    "a lone surrogate in a key": lambda d: d | {"sampling": {"\udfff": 1}},
    "flags that are a string": lambda d: d | {"flags": "forged"},
    "a message without a role": lambda d: d["messages"][0].pop("role") and d,
    "content that is a list": lambda d: d["messages"][0].update(content=["x"]) or d,
    "arguments as a string": lambda d: d["messages"][2]["tool_calls"][0]["function"].update(arguments="{}") or d,
    "arguments with NaN": lambda d: (
        d["messages"][2]["tool_calls"][0]["function"].update(arguments={"n": float("nan")}) or d
    ),
    "a call that is not an object": lambda d: d["calls"].append(None) or d,
    "a call without a reply": lambda d: d["calls"][0].update(assistant_index=99) or d,
    "a reply by the user": lambda d: d["calls"][0].update(assistant_index=1) or d,
    "a negative index": lambda d: d["calls"][0].update(assistant_index=-1) or d,
    "a prompt that contains its reply": lambda d: d["calls"][0].update(n_prompt_messages=3) or d,
    "a token that is a float": lambda d: d["calls"][0].update(token_ids=[1.5]) or d,
    "a token that is true": lambda d: d["calls"][0]["token_ids"].__setitem__(0, True) or d,
    "a token below 0": lambda d: d["calls"][0]["token_ids"].__setitem__(0, -1) or d,
    "a token beyond any vocabulary": lambda d: d["calls"][0]["token_ids"].__setitem__(0, 2**31) or d,
    "fewer log-probabilities than tokens": lambda d: d["calls"][0]["logprobs"].pop() and d,
    "an infinite log-probability": lambda d: d["calls"][0]["logprobs"].__setitem__(0, float("-inf")) or d,
    "a log-probability beyond floats": lambda d: d["calls"][0]["logprobs"].__setitem__(0, -(10**400)) or d,
    "a prefix that is too long": lambda d: d["calls"][1].update(prefix_len=10**6) or d,
    "a prompt without tokens": lambda d: d["calls"][0].update(prompt_suffix_ids=[]) or d,
    "trainable that is a number": lambda d: d["calls"][0].update(trainable=1) or d,
    "sent later messages": lambda d: d["calls"][0].update(sent=[[0, 5]]) or d,
    "sent nonsense": lambda d: d["calls"][0].update(sent=["x"]) or d,
    "usage that is a string": lambda d: d["calls"][0].update(usage="many") or d,
    "tools that are numbers": lambda d: d | {"tools": [1]},
    "nested too deeply": lambda d: d | {"sampling": {"x": json.loads("[" * 60 + "]" * 60)}},
    "a verdict that is a list": lambda d: d | {"verdict": []},
    "a solve rate that is a string": lambda d: d["task"].update(solve_rate="1") or d,
    "a solve rate of 2": lambda d: d["task"].update(solve_rate=2) or d,
    "a flag that is a number": lambda d: d | {"flags": [1]},
    "a model that is a number": lambda d: d | {"policy": {"model": 1}},
    "a strategy that is a number": lambda d: d["task"].update(strategy=1) or d,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_rejected(name: str) -> None:
    with pytest.raises(SkippedError, match=r"^the record is damaged: "):
        Record.of(DAMAGED[name](json_record()))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
PATHS = [(), ("task",), ("messages", 0), ("messages", 2), ("calls", 0), ("calls", 1), ("calls", 0, "usage")]


@given(st.sampled_from(PATHS), st.data())
def test_any_value_in_a_field_is_read_or_rejected(path: tuple[Any, ...], data: st.DataObject) -> None:
    damaged = copy.deepcopy(json_record())
    target: Any = damaged
    for step in path:
        target = target[step]
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JUNK)
    try:
        result = Record.of(damaged)
    except SkippedError:
        return
    json.dumps(result.data, allow_nan=False).encode()
    assert result.reward is None or isinstance(result.reward, int | float)


def test_a_trajectory_with_invalid_prompts_is_rejected() -> None:
    for sent in (("x",), (5,), (-1,), ({"role": 1},), (0, 2)):
        rollout = played(commands=("ls",))
        call = rollout.calls[0]
        damaged = ModelCall(0, sent, call.assistant_index, "stop", Usage(), None, 0.0, "", None, None, None)
        rollout.calls[0] = damaged
        with pytest.raises(SkippedError, match=r"prompt contains|did not exist yet"):
            record_of(rollout, RolloutContext())
