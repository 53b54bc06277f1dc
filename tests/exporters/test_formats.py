"""The rows of each format of rollouts, and above all what they must not contain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rollout_parts import Several, played, record, rows, windowed

from harness.exporters.formats import FORMATS
from harness.exporters.protocol import Choices
from harness.exporters.record_builder import RolloutContext, record_of
from harness.records.messages import ASSISTANT, ToolCall
from harness.records.trajectory import ExitReason, Trajectory


def skipped(name: str, *records: Any, **choices: Any) -> list[tuple[str, str]]:
    group = Several(records)
    assert list(FORMATS[name].rows(group, Choices(**choices))) == []
    return group.left


def test_rows_have_the_declared_columns() -> None:
    records = record(), record(played("r2", ("ls", "rm")), -1.0)
    for name in [name for name, form in FORMATS.items() if not form.of_tasks]:
        exported = rows(FORMATS[name], *records)
        assert exported, name
        assert all(list(row) == list(FORMATS[name].columns) for row in exported), name


def test_sft_is_a_conversation_with_arguments_as_objects() -> None:
    (row,) = rows(FORMATS["sft"], record())
    assert [m["role"] for m in row["messages"]] == ["system", "user", ASSISTANT, "tool", ASSISTANT]
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"command": "ls"}
    assert row["tools"][0]["function"]["name"] == "bash"
    assert (row["reward"], row["solve_rate"], row["repository"]) == (1.0, 0.5, "calc")


def test_sft_skips_rollouts_that_messages_cannot_express() -> None:
    ((_, reason),) = skipped("sft", record_of(windowed(), RolloutContext(reward=1.0)))
    assert reason.startswith("its prompts omit turns")
    ((_, reason),) = skipped("sft", record(changed(played(), 1, trainable=False)))
    assert reason.startswith("some of its replies must not be trained on")
    ((_, reason),) = skipped("sft", record(played(commands=())))
    assert reason == "it made no model calls: there are no messages to learn from"
    rollout = played()
    rollout.calls.pop(0)
    ((_, reason),) = skipped("sft", record(rollout))
    assert reason == "its prompts contain assistant messages that no call produced"


def test_sft_skips_malformed_calls() -> None:
    rollout = played()
    malformed = ToolCall.parse("c0", "bash", "{oh")
    rollout.messages[2] = replace(rollout.messages[2], tool_calls=(malformed,))
    ((_, reason),) = skipped("sft", record(rollout))
    assert reason.startswith("a reply calls a tool with arguments that are not a JSON object")


def changed(rollout: Trajectory, index: int, **fields: Any) -> Trajectory:
    rollout.calls[index] = replace(rollout.calls[index], **fields)
    return rollout


def test_a_reply_that_was_cut_off_is_not_exported_as_text() -> None:
    cut = record(changed(played(), 1, finish_reason="length"))
    ((_, reason),) = skipped("sft", cut)
    assert reason.startswith("a reply was cut off at a limit")
    assert [r["step"] for r in rows(FORMATS["bc"], cut)] == [0]
    other = record(played("b", ("ls", "rm")), -1.0)
    assert skipped("dpo", cut, other)[0] == ("r1, call 1", reason.split(";")[0])
    # Its tokens are exactly those that were sampled, without an end token.
    assert len(rows(FORMATS["sft-tokens"], cut)) == 1


def test_bc_has_a_row_for_each_reply_with_its_exact_prompt() -> None:
    first, second = rows(FORMATS["bc"], record())
    assert [m["role"] for m in first["prompt"]] == ["system", "user"]
    assert [m["role"] for m in second["prompt"]] == ["system", "user", ASSISTANT, "tool"]
    assert [len(r["completion"]) for r in (first, second)] == [1, 1]
    assert second["completion"][0]["tool_calls"][0]["function"]["arguments"] == {"command": "make"}
    group = Several([record_of(windowed(), RolloutContext(reward=1.0))])
    steps = list(FORMATS["bc"].rows(group, Choices()))
    assert [r["step"] for r in steps] == [1, 2]
    # As context, the malformed call stays in the form that was sent to the server.
    assert steps[0]["prompt"][1]["tool_calls"][0]["function"]["arguments"] == {"malformed": "{oh"}
    assert group.left[0][0] == "r, call 0"


def test_pairs_share_their_prompt_and_differ_in_one_reply() -> None:
    good, bad = record(played("a", ("ls", "make"))), record(played("b", ("ls", "rm"), attempt=1), -1.0)
    (row,) = rows(FORMATS["dpo"], good, bad)
    assert row["step"] == 1
    assert [m["role"] for m in row["prompt"]] == ["system", "user", ASSISTANT, "tool"]
    assert len(row["chosen"]) == len(row["rejected"]) == 1
    assert row["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"command": "make"}
    assert row["rejected"][0]["tool_calls"][0]["function"]["arguments"] == {"command": "rm"}
    assert (row["chosen_value"], row["rejected_value"]) == (1.0, -1.0)
    assert (row["chosen_rollout_id"], row["rejected_rollout_id"]) == ("a", "b")
    replies = rows(FORMATS["kto"], good, bad)
    assert [(r["label"], r["rollout_id"]) for r in replies] == [(True, "a"), (False, "b")]
    assert replies[0]["prompt"] == replies[1]["prompt"] == row["prompt"]
    # Their order is irrelevant.
    assert rows(FORMATS["dpo"], bad, good)[0]["chosen_rollout_id"] == "a"


@pytest.mark.parametrize("name", ["sft", "sft-tokens", "bc", "dpo", "kto", "grpo", "slime-samples"])
def test_each_row_names_who_made_it(name: str) -> None:
    good = record(played("a", ("ls", "make"), model="good"), task={"injector": "mutation"})
    bad = record(played("b", ("ls", "rm"), attempt=1, model="bad"), -1.0)
    made = rows(FORMATS[name], good, bad)
    if name == "slime-samples":
        assert {row["metadata"]["model"] for row in made} == {"good", "bad"}
        return
    assert all(list(row) == list(FORMATS[name].columns) for row in made)
    if name == "grpo":
        assert [(row["model"], row["injector"]) for row in made] == [("good", "mutation")]
    elif name == "dpo":
        assert [(row["model"], row["rejected_model"]) for row in made] == [("good", "bad")]
    else:
        assert {(row["rollout_id"], row["model"]) for row in made} == {("a", "good"), ("b", "bad")}


def test_the_best_reply_is_paired_with_the_worst_and_none_twice() -> None:
    # Three first replies: the value of `a` is 1, of `b` 0 (one attempt of two), of `c` -1.
    records = [
        record(played("a", ("a",)), 1.0),
        record(played("b1", ("b", "x")), 1.0),
        record(played("b2", ("b", "y")), -1.0),
        record(played("c", ("c",)), -1.0),
    ]
    pairs = rows(FORMATS["dpo"], *records)
    assert [(r["step"], r["chosen_rollout_id"], r["rejected_rollout_id"]) for r in pairs] == [
        (0, "a", "c"),
        (1, "b1", "b2"),
    ]
    assert pairs[0]["chosen_value"] == 1.0


def test_replies_with_equal_values_or_different_prompts_are_not_paired() -> None:
    unpaired = "no other attempt gave a different reply to one of its prompts and got a different reward"
    assert skipped("dpo", record(played("a", ("a",))), record(played("b", ("b",)))) == [
        ("a", unpaired),
        ("b", unpaired),
    ]
    assert skipped("dpo", record(played("a", ("a",))), record(played("a2", ("a",)), -1.0)) == [
        ("a", unpaired),
        ("a2", unpaired),
    ]
    other = record(played("b", ("b",), task="t2"), -1.0)
    assert skipped("kto", record(played("a", ("a",))), other) == [("a", unpaired), ("b", unpaired)]


def test_a_failure_of_the_machine_is_not_paired() -> None:
    lost = record(played("b", ("b",), end=ExitReason.INFRA), -1.0)
    assert skipped("dpo", record(played("a", ("a",))), lost)[0][0] == "a"


def test_grpo_has_each_prompt_once() -> None:
    (row,) = rows(FORMATS["grpo"], record(), record(played("r2"), -1.0))
    assert [m["role"] for m in row["prompt"]] == ["system", "user"]
    assert row["task_id"] == "t1"


def test_slime_has_a_sample_for_each_reply_and_masks_all_other_tokens() -> None:
    first, second = rows(FORMATS["slime-samples"], record())
    for row in (first, second):
        assert len(row["loss_mask"]) == len(row["rollout_log_probs"]) == row["response_length"]
        assert row["loss_mask"] == [1] * row["response_length"]
        assert row["reward"] == 1.0
    assert first["rollout_id"] == second["rollout_id"]
    assert first["group_index"] == second["group_index"]
    assert first["index"] != second["index"]
    assert bytes(second["tokens"][-second["response_length"] :]).startswith(b"\xc3\xa9!")
    assert max(first["group_index"], first["index"], first["rollout_id"]) < 2**53


def test_a_segment_of_slime_masks_tool_output() -> None:
    (row,) = rows(FORMATS["slime-samples"], record(), samples="segment")
    response = row["tokens"][-row["response_length"] :]
    masked = bytes(t for t, m in zip(response, row["loss_mask"], strict=True) if not m).decode()
    assert masked == "<tool>output of ls</><assistant>"
    assert all((p != 0.0) == bool(m) for p, m in zip(row["rollout_log_probs"], row["loss_mask"], strict=True))
    assert len(row["loss_mask"]) == row["response_length"]


def test_segment_reward_divides_the_reward() -> None:
    def rewards(mode: str) -> list[float]:
        return [r["reward"] for r in rows(FORMATS["slime-samples"], record(reward=-1.0), segment_reward=mode)]

    assert rewards("full") == [-1.0, -1.0]
    assert rewards("split") == [-0.5, -0.5]
    assert rewards("last") == [0.0, -1.0]


def test_slime_skips_rollouts_that_are_not_on_policy() -> None:
    assert "not on-policy" in skipped("slime-samples", record(played(ids=False)))[0][1]
    assert "none of its replies was sampled" in skipped("slime-samples", record(played(sampled=False)))[0][1]
    rollout = changed(played(), 1, logprobs=None)
    assert "replies are missing" in skipped("slime-samples", record(rollout))[0][1]
    # The tokens are still exact and can be imitated; the row is marked as not on-policy.
    (row,) = rows(FORMATS["sft-tokens"], record(rollout))
    assert row["on_policy"] is False
