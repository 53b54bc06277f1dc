"""Trajectories of ATIF: written from records, and read back from whichever agent wrote them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_parts import export, lines, report_of
from harbor_parts import failure, steps_of, trajectory_of, trial
from hypothesis import given
from hypothesis import strategies as st
from rollout_parts import Several, add_task, keep, played, record, rows, store, windowed

from harness.exporters.atif_reader import record_data
from harness.exporters.formats import FORMATS
from harness.exporters.protocol import Choices
from harness.exporters.record import Record
from harness.exporters.record_builder import RolloutContext, record_of
from harness.exporters.skipped import SkipCode
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolCall, Usage
from harness.records.trajectory import ExitReason, Journal, ModelCall, Trajectory


def left_out(report: dict[str, Any]) -> dict[str, int]:
    return {item["code"]: item["count"] for item in report["left_out"]}


def returned(result: Record) -> Record:
    """Return the record of a record's trajectory, after both were JSON."""
    (row,) = rows(FORMATS["atif"], result)
    for step in row["steps"]:
        called = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        observed = step["observation"]["results"] if "observation" in step else []
        # ATIF forbids results of calls that the step did not make.
        assert {r["source_call_id"] for r in observed if "source_call_id" in r} <= called
    data, omissions = record_data([json.loads(json.dumps(row))])
    assert omissions == []
    return Record.of(data)


def read(*trajectories: dict[str, Any]) -> tuple[Record, list[tuple[str, SkipCode]]]:
    data, omissions = record_data(trajectories)
    return Record.of(json.loads(json.dumps(data))), [(name, error.code) for name, error in omissions]


def test_a_trajectory_has_the_steps_tokens_and_the_grade() -> None:
    result = record(verdict={"resolved": True, "reason": "x"}, flags=["tests-restored"])
    (row,) = rows(FORMATS["atif"], result)
    assert [s["source"] for s in row["steps"]] == ["system", "user", "agent", "agent"]
    assert [s["step_id"] for s in row["steps"]] == [1, 2, 3, 4]
    step = row["steps"][3]
    assert step["tool_calls"] == [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "make"}}]
    (observed,) = step["observation"]["results"]
    assert (observed["source_call_id"], observed["content"]) == ("c1", "output of make")
    second = played().calls[1]
    metrics = step["metrics"]
    # The whole prompt, although records hold only its new part.
    assert metrics["prompt_token_ids"] == list(second.prompt_ids or ())
    assert metrics["completion_token_ids"] == list(second.token_ids or ())
    assert metrics["logprobs"] == list(second.logprobs or ())
    assert row["final_metrics"]["total_prompt_tokens"] == sum(c.usage.prompt_tokens for c in played().calls)
    assert "total_cost_usd" not in row["final_metrics"]
    assert row["agent"]["tool_definitions"] == list(result.data["tools"])
    assert (row["extra"]["reward"], row["extra"]["verdict"], row["extra"]["flags"]) == (
        1.0,
        {"resolved": True, "reason": "x"},
        ["tests-restored"],
    )


def test_a_record_returns_from_its_trajectory() -> None:
    script = played(sampled=False, ids=False)
    rejected = (Message(ASSISTANT, "no", (ToolCall.parse("c9", "bash", "{oh"),)),)
    script.calls[0] = replace(script.calls[0], rejected=rejected, cost_usd=0.25)
    for result in (
        record(),
        record_of(windowed(), RolloutContext()),
        record(script, -1.0),
        record(played(end=ExitReason.INFRA), None),
    ):
        assert returned(result).data == result.data
    assert not returned(record(script)).calls[0].trainable


def test_a_record_without_messages_has_no_trajectory() -> None:
    group = Several([record_of(Trajectory("r", "t", "solver", 0, "search"), RolloutContext())])
    assert list(FORMATS["atif"].rows(group, Choices())) == []
    assert group.codes == [SkipCode.NO_CALLS]


def test_a_reply_of_two_calls_has_no_trajectory() -> None:
    data = json.loads(json.dumps(record().data))
    data["calls"].append(data["calls"][1] | {"prefix_len": 0})
    group = Several([Record.of(data)])
    assert list(FORMATS["atif"].rows(group, Choices())) == []
    assert group.codes == [SkipCode.DAMAGED]


_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_TOKENS = st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple)
_CALLS = st.lists(
    st.builds(ToolCall.parse, st.sampled_from(["c0", "c1"]), st.sampled_from(["bash", "edit"]), st.sampled_from(
        ['{"command": "ls"}', "{oh", "", '{"n": [1, null]}']
    )),
    max_size=2,
).map(tuple)  # fmt: skip
_THOUGHTS = st.sampled_from([{}, {"reasoning": "hm"}, {"reasoning_content": "so"}])
_REPLIES = st.builds(Message, st.just(ASSISTANT), _TEXT, _CALLS, thoughts=_THOUGHTS)
_MESSAGES = st.one_of(
    _REPLIES,
    st.builds(Message, st.sampled_from([SYSTEM, USER]), _TEXT),
    st.builds(Message, st.just(TOOL), _TEXT, tool_call_id=st.sampled_from(["c0", "c1", "other"])),
)


@st.composite
def rollouts(draw: st.DrawFn) -> Trajectory:
    """Draw a rollout: any order of messages, prompts that omit and replace some, with and without tokens."""
    journal = Journal(Trajectory("r", "t", draw(st.sampled_from(["solver", "injector"])), 2, "m"))
    for message in draw(st.lists(_MESSAGES, min_size=1, max_size=8)):
        index = journal.message(message)
        if message.role != ASSISTANT or draw(st.booleans()):
            continue
        window = draw(st.sets(st.integers(0, index - 1))) if index else set()
        sent: list[Any] = sorted(window) if draw(st.booleans()) else list(range(index))
        if draw(st.booleans()):
            sent.insert(0, {**Message(USER, "[shortened]").to_json(), "left_out": [0, 1]})
        ids = draw(st.one_of(st.none(), st.tuples(_TOKENS, _TOKENS)))
        prompt, tokens = ids or (None, None)
        logprobs = (-0.5,) * len(tokens) if tokens and draw(st.booleans()) else None
        journal.call(
            ModelCall(
                len(journal.trajectory.calls),
                tuple(sent),
                index,
                draw(st.sampled_from(["stop", "length"])),
                Usage(3, 2, 1, estimated=draw(st.booleans())),
                draw(st.sampled_from([None, 0.5])),
                0.1,
                "q",
                prompt,
                tokens,
                logprobs,
                trainable=draw(st.booleans()),
                rejected=tuple(draw(st.lists(_REPLIES, max_size=1))),
            )
        )
    return journal.end(draw(st.sampled_from(list(ExitReason))))


@given(rollouts())
def test_every_record_returns_from_its_trajectory(rollout: Trajectory) -> None:
    result = record_of(rollout, RolloutContext(reward=1.0, verdict={"resolved": True}))
    assert returned(result) == result


@pytest.mark.parametrize("minor", range(9))
def test_all_versions_are_read(minor: int) -> None:
    result, omissions = read(trajectory_of("look", "fix", schema_version=f"ATIF-v1.{minor}"))
    assert omissions == []
    assert [m["role"] for m in result.data["messages"]] == [SYSTEM, USER, ASSISTANT, TOOL, ASSISTANT, TOOL]
    assert result.data["messages"][3] == {"role": TOOL, "content": "saw 0", "name": "bash", "tool_call_id": "c0"}
    assert [len(c.prompt) for c in result.calls] == [2, 4]
    assert (result.model, result.reward, result.data["provenance"]["agent"]) == ("org/m", None, "terminus-2")


def test_tokens_are_kept_as_new_parts_of_prompts() -> None:
    steps = steps_of("look", "fix")
    steps[2]["metrics"] |= {"prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.1]}
    steps[3]["metrics"] |= {"prompt_token_ids": [1, 2, 3, 4], "completion_token_ids": [5], "logprobs": [-0.2]}
    result, _ = read(trajectory_of(steps=steps))
    assert [(c.prefix_len, c.suffix, c.token_ids) for c in result.calls] == [(0, (1, 2), (3,)), (3, (4,), (5,))]
    assert result.on_policy
    # Of several calls at once, nobody knows whose they are.
    steps[3]["llm_call_count"] = 2
    result, _ = read(trajectory_of(steps=steps))
    assert [c.has_ids for c in result.calls] == [True, False]


def test_an_answer_without_a_call_is_the_users() -> None:
    steps = steps_of("look")
    steps[2].pop("tool_calls")
    steps[2]["observation"] = {"results": [{"content": "screen"}]}
    result, _ = read(trajectory_of(steps=steps))
    assert result.data["messages"][3] == {"role": USER, "content": "screen"}


def test_a_step_that_no_model_made_is_not_trained_on() -> None:
    steps = steps_of("look", "fix")
    steps[2].pop("metrics")
    steps[2]["llm_call_count"] = 0
    result, _ = read(trajectory_of(steps=steps))
    assert [c.trainable for c in result.calls] == [False, True]


def test_copied_context_is_context_alone() -> None:
    steps = steps_of("look", "fix")
    steps[2]["is_copied_context"] = True
    result, omissions = read(trajectory_of(trajectory_id="x", steps=steps))
    assert [c.reply["content"] for c in result.calls] == ["fix"]
    assert len(result.calls[0].prompt) == 4
    assert omissions == [("x, step 3", SkipCode.COPIED_CONTEXT)]


def test_replies_after_an_image_are_left_out_by_name() -> None:
    steps = steps_of("look", "see", "fix")
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}
    steps[3]["observation"]["results"][0]["content"] = [{"type": "text", "text": "shown"}, picture]
    result, omissions = read(trajectory_of(trajectory_id="x", steps=steps))
    assert [c.reply["content"] for c in result.calls] == ["look", "see"]
    assert result.data["messages"][5]["content"] == "shown"
    assert omissions == [("x, step 4", SkipCode.MEDIA), ("x, step 5", SkipCode.MEDIA)]


def test_subagents_and_missing_continuations_are_left_out_by_name() -> None:
    steps = steps_of("look")
    steps[2]["observation"]["results"][0]["subagent_trajectory_ref"] = [
        {"trajectory_id": "inner"},
        {"trajectory_path": "trajectory.summary.json"},
    ]
    inner = trajectory_of("sub", trajectory_id="inner")
    whole = trajectory_of(
        trajectory_id="x", steps=steps, subagent_trajectories=[inner], continued_trajectory_ref="more.json"
    )
    result, omissions = read(whole)
    assert len(result.calls) == 1
    assert omissions == [
        ("x, subagent inner", SkipCode.SUBAGENT),
        ("x, subagent trajectory.summary.json", SkipCode.SUBAGENT),
        ("x, more.json", SkipCode.CONTINUATION),
    ]


def test_attempts_at_one_task_share_its_id_and_a_copy_shares_the_rollouts() -> None:
    one, other = (read(trajectory_of(reply))[0] for reply in ("look", "run"))
    assert one.data["task_id"] == other.data["task_id"]
    assert one.id != other.id
    assert read(trajectory_of("look"))[0].id == one.id


def test_the_records_of_a_file_of_trajectories_are_those_of_the_store(tmp_path: Path) -> None:
    folder = store(tmp_path / "project" / ".ssr")
    add_task(folder, "t1", "calc")
    keep(folder, "a" * 24, True, commands=("ls", "make"))
    keep(folder, "b" * 24, False, commands=("ls", "rm"), attempt=1)
    keep(folder, "c" * 24, None, commands=("ls",), attempt=2, end=ExitReason.INFRA)
    assert export(folder, "--format", "atif", "--out", tmp_path / "all.jsonl") == 0
    assert len(lines(tmp_path / "all.jsonl")) == 3
    for name in ("rollouts", "atif", "sft", "sft-tokens", "bc", "dpo", "kto", "grpo", "slime-samples"):
        assert export(folder, "--format", name, "--out", tmp_path / "from-store" / name) == 0
        assert export(tmp_path / "all.jsonl", "--format", name, "--out", tmp_path / "from-file" / name) == 0
        one, other = (lines(tmp_path / at / name / "data/train.jsonl") for at in ("from-store", "from-file"))
        assert one == other, name


def test_a_single_file_is_read_with_what_continues_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = steps_of("summary", "fix")
    steps[2]["is_copied_context"] = True
    # A continuation that names itself ends there.
    more = {"continued_trajectory_ref": "trajectory.cont-1.json"}
    (tmp_path / "trajectory.json").write_text(json.dumps(trajectory_of("look", **more), indent=2))
    (tmp_path / "trajectory.cont-1.json").write_text(json.dumps(trajectory_of(steps=steps, **more)))
    report = report_of(capsys, tmp_path / "trajectory.json", "--format", "rollouts", "--out", tmp_path / "r.jsonl")
    assert left_out(report) == {"copied-context": 1, "continuation": 1}
    (data,) = lines(tmp_path / "r.jsonl")
    calls = Record.of(data).calls
    assert [[m["content"] for m in c.prompt] for c in calls] == [
        ["be brief", "repair it"],
        ["be brief", "repair it", "summary", "saw 0"],
    ]


@pytest.mark.parametrize("reference", ["../trajectory.json", "trajectory.json", "/etc/hostname", "", "."])
def test_a_continuation_elsewhere_is_not_read(
    tmp_path: Path, reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in" / "trajectory.json"
    path.parent.mkdir()
    path.write_text(json.dumps(trajectory_of("look", continued_trajectory_ref=reference)))
    (tmp_path / "trajectory.json").write_text(json.dumps(trajectory_of("secret")))
    report = report_of(capsys, path, "--format", "rollouts", "--out", tmp_path / "r.jsonl")
    assert (report["rows"], left_out(report)) == (1, {"continuation": 1})


def test_a_job_gives_the_rewards_of_its_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "jobs" / "a"
    trial(job, "t__good", trajectory_of("look", "fix"))
    trial(job, "t__bad", trajectory_of("look", "rm"), verifier_result={"rewards": {"reward": 0, "tests": 1}})
    trial(job, "t__late", trajectory_of("look"), **failure("AgentTimeoutError", True))
    trial(job, "t__down", trajectory_of("look"), **failure("ApiRateLimitError", False))
    trial(job, "t__running", trajectory_of("look"), running=True)
    trial(job, "t__oracle")
    out = tmp_path / "r.jsonl"
    for source in (job, tmp_path / "jobs"):
        report = report_of(capsys, source, "--format", "rollouts", "--out", out)
        assert (report["rows"], left_out(report)) == (5, {"no-trajectory": 1})
    records = {data["rollout_id"]: data for data in lines(out)}
    assert {name: (r["reward"], r["status"], r["exit_reason"]) for name, r in records.items()} == {
        "id-t__good": (1.0, "completed", "submitted"),
        "id-t__bad": (0.0, "completed", "submitted"),
        "id-t__late": (1.0, "truncated", "time_limit"),
        "id-t__down": (None, "aborted", "ApiRateLimitError"),
        "t__running": (None, "aborted", "interrupted"),
    }
    good = records["id-t__good"]
    assert (good["task_id"], good["policy"]["model"]) == ("org/own__shop-1", "org/m")
    assert (good["task"]["solve_rate"], good["task"]["graded"]) == (2 / 3, 3)
    report = report_of(capsys, job, "--format", "sft", "--out", tmp_path / "sft.jsonl")
    assert (report["rows"], left_out(report)) == (2, {"no-grade": 2, "not-positive": 1, "no-trajectory": 1})
    # Harbor has one verdict, which no rule of ours changes.
    assert export(job, "--format", "rollouts", "--rule", "tests", "--out", out) == 0
    (bad,) = (data for data in lines(out) if data["rollout_id"] == "id-t__bad")
    assert (bad["reward"], bad["reward_components"]) == (0.0, {"harbor": 0.0})


def test_a_trial_of_several_steps_is_one_rollout(tmp_path: Path) -> None:
    steps = [{"step_name": name, "agent_result": None, "exception_info": None} for name in ("a", "b")]
    folder = trial(tmp_path / "job", "t__1", step_results=steps)
    for name in ("a", "b"):
        path = folder / "steps" / name / "agent" / "trajectory.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(trajectory_of(f"of {name}")))
    assert export(tmp_path / "job", "--format", "rollouts", "--out", tmp_path / "r.jsonl") == 0
    (data,) = lines(tmp_path / "r.jsonl")
    assert [c.reply["content"] for c in Record.of(data).calls] == ["of a", "of b"]


def test_tokens_that_only_the_result_has_are_kept(tmp_path: Path) -> None:
    detail = {"prompt_token_ids": [[1], [1, 2, 3]], "completion_token_ids": [[2], [4]], "logprobs": [[-1.0], [-2.0]]}
    usage = {"rollout_details": [detail]}
    trial(tmp_path / "job", "t__1", trajectory_of("look", "fix"), agent_result=usage)
    trial(tmp_path / "job", "t__2", trajectory_of("look"), agent_result=usage)
    assert export(tmp_path / "job", "--format", "sft-tokens", "--out", tmp_path / "t.jsonl") == 0
    # The turns of the other trial do not agree.
    assert [(r["rollout_id"], r["input_ids"]) for r in lines(tmp_path / "t.jsonl")] == [("id-t__1", [1, 2, 3, 4])]


def test_damage_is_named_and_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job"
    trial(job, "t__good", trajectory_of("look"))
    trial(job, "t__twin", trajectory_of("look"), id="id-t__good")
    (trial(job, "t__cut", trajectory_of("look")) / "result.json").write_text('{"id": ')
    (trial(job, "t__nan", trajectory_of("look")) / "result.json").write_text(
        json.dumps({**json.loads((job / "t__good/result.json").read_text()), "verifier_result": {"rewards": {"reward": float("nan")}}})
    )  # fmt: skip
    (trial(job, "t__text", trajectory_of("look")) / "agent/trajectory.json").write_text('{"schema')
    trial(job, "t__version", trajectory_of("look", schema_version="ATIF-v2.0"))
    trial(job, "t__cost", trajectory_of(steps=steps_of("look", cost_usd=float("nan"))))
    trial(job, "t__odds", trajectory_of(steps=steps_of("look", completion_token_ids=[1], logprobs=[float("-inf")])))
    report = report_of(capsys, job, "--format", "rollouts", "--out", tmp_path / "r.jsonl")
    assert (report["rows"], left_out(report)) == (1, {"damaged": 6, "duplicate": 1})
    assert all(any(name in e for name in ("t__", "id-t__")) for item in report["left_out"] for e in item["examples"])


@pytest.mark.parametrize("text", ['{"schema_version": "ATIF-v1.8", "steps": ', '{"schema_version": "ATIF-v1.8"}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trajectory.json"
    path.write_text(text)
    report = report_of(capsys, path, "--format", "sft", "--out", tmp_path / "r.jsonl")
    assert (report["rows"], left_out(report)) == (0, {"damaged": 1})
    assert report["left_out"][0]["examples"][0].startswith("trajectory.json")


def test_a_dataset_in_a_json_file_is_no_trajectory(tmp_path: Path) -> None:
    for text in ('{"instance_id": "a__b-1"}', '[{"schema_version": "ATIF-v1.8"}]'):
        path = tmp_path / "rows.json"
        path.write_text(text)
        assert export(path, "--format", "sft", "--out", tmp_path / "r.jsonl") == 2
