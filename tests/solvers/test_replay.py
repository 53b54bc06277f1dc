"""A recording is replayed byte for byte, whatever its rollout was like, and the right one is selected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.replay import repeat
from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message, Reply, Sampling, ToolCall, Usage
from harness.records.trajectory import ExitReason, Journal, Step, Trajectory, read_trajectory
from harness.solvers.protocol import SolverTask, decode_patch, encode_patch
from harness.solvers.replay import ReplaySolver
from pytest_ssr.errors import ArtifactError, ModelError, SandboxError, SettingsError, StoreError
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.patch.make import make_patch
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits


class Look:
    """A tool that returns its argument with a count, and submits or breaks on request."""

    name, description = "look", "look"
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}

    def __init__(self) -> None:
        self.used = 0

    def use(self, arguments: Any, workspace: Workspace) -> Observation:
        self.used += 1
        at = arguments["at"]
        if at == "the end":
            return Observation("handed in", 0, done=True, result=encode_patch(PATCH))
        if at == "nothing":
            raise SandboxError("the container is gone")
        return Observation(
            f"{self.used}: {at * 3000}", None if at == "x" else 3, "wall time" if at == "x" else "", 1.25
        )


PATCH = make_patch({"a.py": (FileEntry(b"x = '\xe9'\n"), FileEntry(b"x = '\xe8'\n"))})


def look(*ats: str) -> Message:
    calls = (ToolCall.parse(f"c{n}", "look", json.dumps({"at": at})) for n, at in enumerate(ats))
    return Message(ASSISTANT, "so", tuple(calls), thoughts={"reasoning": "hm"})


def raw(text: str, name: str = "look") -> Message:
    return Message(ASSISTANT, "", (ToolCall.parse("c", name, text),))


class Sampled(ScriptedModel):
    """Every second reply is sampled from a model, with tokens."""

    def reply(self, *arguments: Any, **named: Any) -> Reply:
        reply = super().reply(*arguments, **named)
        if len(self.seen) % 2:
            return reply
        return replace(
            reply,
            sampled=True,
            token_ids=(1, 2),
            logprobs=(-0.5, -1.0),
            prompt_ids=(3,),
            usage=Usage(5, 2),
            cost_usd=0.1,
        )


def play(folder: Path, *replies: Message, task: str = "t", attempt: int = 0, role: str = "solver", seed: int = 7,
         model: str = "m", **settings: Any) -> Path:  # fmt: skip
    """Run and record a rollout."""
    name = f"{task}-{role}-{attempt}-{model}-{seed}"
    path = folder / name / "trajectory.jsonl"
    limits = RolloutLimits(**settings)
    agent = Agent(Sampled(model, replies), [Look()], limits, Sampling(max_tokens=50, seed=seed))
    journal = Journal(Trajectory(name, task, role, attempt, model, provenance={"seed": seed}), path)
    journal.describe(
        tools=[{"function": {"name": "look", "description": "look", "parameters": Look.parameters}}],
        sampling={"max_tokens": 50, "seed": seed},
        limits={**{n: getattr(limits, n) for n in limits.__slots__}},
        observe_as="tool",
    )
    agent.run("be brief", "repair it", Workspace(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits()), journal)
    return path


ROLLOUTS: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "handed in": ([look("a"), look("b", "c"), look("the end")], {}),
    "malformed": (
        [Message(ASSISTANT, "no call"), raw("{oops"), look("a"), raw('{"at": 3}'), raw("{}", "fly"), look("b"),
         Message(ASSISTANT, '```look\n{"at": "x"}\n```'), look("the end")],
        {"format_errors": 9},
    ),
    "too many malformed": ([look("a"), Message(ASSISTANT, "no"), raw('{"where": 1}'), raw("{oops")], {"format_errors": 2}),
    "a loop": ([raw('{"at": 3}')] * 5, {"repeats": 3}),
    "step limit": ([look("a"), look("b")], {"steps": 2}),
    "token limit": ([look("a"), look("b"), look("c")], {"tokens": 7}),
    "no more replies": ([look("a")], {}),
    "a sandbox that broke": ([look("a"), look("b", "nothing", "c")], {}),
    "elided": ([look("a"), look("the end")], {"output_chars": 200}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROLLOUTS)
def test_a_replay_is_the_same_byte_for_byte(tmp_path: Path, kind: str) -> None:
    replies, settings = ROLLOUTS[kind]
    path = play(tmp_path, *replies, **settings)
    original = read_trajectory(path)
    journal = Journal(Trajectory("other", "other", "solver", 3, "replay"), tmp_path / "again.jsonl")
    done = repeat(original, journal)
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()
    assert [c.trainable for c in done.calls] == [c.trainable for c in original.calls]
    assert {c.trainable for c in original.calls[:2]} == {False, True} or len(original.calls) == 1


def test_a_rollout_without_a_model_is_replayed(tmp_path: Path) -> None:
    journal = Journal(Trajectory("s", "t", "solver", 0, "search"), tmp_path / "a.jsonl")
    journal.step(Step(0, -1, "tool", "repair", {"path": "a.py", "line": 3}))
    journal.end(ExitReason.SUBMITTED, "40 candidates tried", encode_patch(PATCH))
    done = repeat(read_trajectory(tmp_path / "a.jsonl"), Journal(Trajectory("", "", "", 0, ""), tmp_path / "b.jsonl"))
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    assert decode_patch(done.result) == PATCH


def test_a_truncated_recording_gets_an_end_and_nothing_else(tmp_path: Path) -> None:
    path = play(tmp_path, look("a"), look("b", "c"), look("the end"))
    lines = path.read_text().splitlines(keepends=True)
    end = '{"event": "end", "exit_reason": "interrupted", "status": "aborted", "detail": "", "result": {}}\n'
    for cut in range(1, len(lines) - 1):
        path.write_text("".join(lines[:cut]) + lines[cut][:20])
        replayed = tmp_path / "again.jsonl"
        repeat(read_trajectory(path), Journal(Trajectory("", "", "", 0, ""), replayed))
        lines_replayed = replayed.read_text().splitlines(keepends=True)
        assert lines_replayed[-1] == end
        # Everything after the last complete reply or action is dropped.
        assert lines_replayed[:-1] == lines[: len(lines_replayed) - 1]
        finished = [n for n, line in enumerate(lines[:cut]) if json.loads(line)["event"] in ("call", "step")]
        assert len(lines_replayed) - 1 >= (finished[-1] + 1 if finished else cut)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("repair it", "mend it", ""),
        ('{"at": "b"}, "raw"', '{"at": "z"}, "raw"', "step 1 of the recording is not this call of look"),
        ("no tool was called", "no tool was named", "message 7 differs from the recording"),
        ('"kind": "format-error"', '"kind": "tool"', "step 2 differs from the recording"),
        ('"exit_reason": "format"', '"exit_reason": "loop"', "the replay ends with format, the recording with loop"),
        ('"repeats": 6', '"patience": 6', "does not fit the current version: TypeError"),
        ('"repeats": 6', '"repeats": 0', "does not fit the current version: SettingsError: repeats must be more"),
        ('"sampling": {', '"sampling": {"beams": 2, ', "does not fit the current version: TypeError"),
        ('"tools": [{"function"', '"tools": [{"program"', "does not fit the current version: KeyError"),
    ],
)
def test_a_difference_is_reported_and_has_no_grade(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = play(tmp_path / "there", look("a"), look("b"), Message(ASSISTANT, "no call"), format_errors=1)
    path.write_text(path.read_text().replace(old, new))
    solver = ReplaySolver(path)
    journal = Journal(Trajectory("", "t", "solver", 0, solver.name), tmp_path / "now" / "trajectory.jsonl")
    done = solver.solve(TASK, seed=7, journal=journal).trajectory
    if not expected:
        assert done.exit_reason is ExitReason.FORMAT
        return
    assert done.status == "aborted"
    assert expected in done.detail


TASK = cast(SolverTask, type("Task", (), {"id": "t"})())


def solve(solver: ReplaySolver, path: Path, *, attempt: int = 0, seed: int = 7) -> tuple[Trajectory, Patch | None]:
    journal = Journal(Trajectory("now", "t", "solver", attempt, solver.name), path)
    solution = solver.solve(TASK, seed=seed, journal=journal)
    return solution.trajectory, solution.patch


def test_it_does_not_read_what_it_writes(tmp_path: Path) -> None:
    path = play(tmp_path, look("a"), look("the end"))
    solver = ReplaySolver(tmp_path)
    for _ in range(2):
        done, patch = solve(solver, tmp_path / "0-first-in-order" / "trajectory.jsonl")
        assert done.exit_reason is ExitReason.SUBMITTED
        assert patch == PATCH, "the patch is recorded without loss"
        solver = ReplaySolver(tmp_path)  # A new solver finds its own recording next to the first one.
    (tmp_path / "0-first-in-order" / "trajectory.jsonl").write_bytes(path.read_bytes()[:900])
    assert solve(ReplaySolver(tmp_path), tmp_path / "x.jsonl")[0].exit_reason is ExitReason.SUBMITTED


def test_the_key_depends_on_the_content_of_the_recordings(tmp_path: Path) -> None:
    path = play(tmp_path, look("a"), look("the end"))
    before = ReplaySolver(tmp_path).key
    solve(ReplaySolver(tmp_path), tmp_path / "0-first-in-order" / "trajectory.jsonl")
    assert ReplaySolver(tmp_path).key == before, "its own recording changes nothing"
    path.write_text(path.read_text().replace('"latency_s": 0.0', '"latency_s": 1.0'))
    assert ReplaySolver(tmp_path).key != before


def test_the_matching_recording_is_selected(tmp_path: Path) -> None:
    play(tmp_path, look("a"), look("the end"), model="openai/a")
    play(tmp_path, look("b"), look("the end"), model="openai/b")
    play(tmp_path, look("c"), look("the end"), model="openai/b", seed=8)
    play(tmp_path, look("d"), look("the end"), model="openai/b", role="injector")
    play(tmp_path, look("e"), look("the end"), model="openai/b", attempt=1)

    def seen(name: str, **asked: Any) -> str:
        done, _ = solve(ReplaySolver.named(f"replay:{tmp_path}{name}"), tmp_path / "now.jsonl", **asked)
        return done.messages[3].content[3] if len(done.messages) > 3 else done.detail

    assert seen("?model=openai/a") == "a"
    assert seen("?model=openai/b") == "b", "the requested seed"
    assert seen("?model=openai/b", seed=8) == "c"
    assert seen("?model=openai/b&seed=8") == "c"
    assert seen("", seed=8) == "c"
    assert seen("", attempt=1) == "e"
    assert "contains no attempt 3 at t" in seen("", attempt=2)
    with pytest.raises(
        SettingsError, match=r"several attempts of the same number at t; choose one of \?model=openai/a&s"
    ):
        seen("")
    for name, expected in {
        "?model=openai/c": "contains no rollout of a solver with model openai/c",
        "?seed=9": "contains no rollout of a solver with seed 9",
        "?colour=red": "has an unknown filter",
        "?seed=x": "has an unknown filter",
        "/nowhere": "does not exist",
    }.items():
        with pytest.raises(SettingsError, match=expected):
            ReplaySolver.named(f"replay:{tmp_path}{name}")
    assert ReplaySolver.named(f"replay:{tmp_path}?seed=8").name == f"replay:{tmp_path}?seed=8"


@pytest.mark.parametrize("result", [{"patch_base64": "x"}, {"patch_base64": "!"}, {"patch": "\ud800"}])
def test_an_unreadable_patch_has_no_grade(result: dict[str, str], tmp_path: Path) -> None:
    (name,) = result
    with pytest.raises(ArtifactError, match=f"{name} cannot be read: "):
        decode_patch(result)
    path = play(tmp_path, look("a"), look("the end"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], json.dumps({**json.loads(lines[-1]), "result": result})]) + "\n")
    done, patch = solve(ReplaySolver(path), tmp_path / "now" / "trajectory.jsonl")
    assert (done.status, patch) == ("aborted", None), "no grade, and no failed attempt"


def test_a_replay_without_a_recording_is_not_a_recording(tmp_path: Path) -> None:
    play(tmp_path, look("a"), look("the end"))
    before = ReplaySolver(tmp_path)
    done, _ = solve(before, tmp_path / "now" / "trajectory.jsonl", attempt=7)
    assert "contains no attempt 8" in done.detail
    assert ReplaySolver(tmp_path).key == before.key
    play(tmp_path, look("b"), look("the end"), attempt=7)
    assert solve(ReplaySolver(tmp_path), tmp_path / "later" / "trajectory.jsonl", attempt=7)[1] == PATCH


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rollout_id", []),
        ("task_id", {}),
        ("attempt", "0"),
        ("model", None),
        ("provenance", 5),
        ("provenance", {"seed": []}),
    ],
)
def test_a_foreign_file_stops_no_replay(tmp_path: Path, name: str, value: object) -> None:
    path = play(tmp_path, look("a"), look("the end"))
    header = json.loads(path.read_text().splitlines()[0])
    foreign = tmp_path / "foreign" / "trajectory.jsonl"
    foreign.parent.mkdir()
    foreign.write_text(json.dumps({**header, name: value}) + "\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "trajectory.jsonl").write_text('{"schema": ' + "[" * 100_000)
    assert solve(ReplaySolver(tmp_path), tmp_path / "now" / "x.jsonl")[1] == PATCH
    if value != {"seed": []}:
        with pytest.raises(StoreError, match="line 1 is not a line of a"):
            read_trajectory(foreign)


@pytest.mark.parametrize(
    ("event", "name", "value"),
    [
        ("message", "content", 5),
        ("message", "thoughts", ["x"]),
        ("message", "tool_calls", [{"id": "c", "name": "look", "arguments": [], "raw": "{}"}]),
        ("call", "usage", {"prompt_tokens": "5"}),
        ("call", "cost_usd", 10**400),
        ("call", "cost_usd", "x"),
        ("call", "token_ids", ["x"]),
        ("step", "id", None),
        ("step", "arguments", []),
        ("step", "observation_index", 1.5),
    ],
)
def test_a_line_with_a_value_of_another_type_is_invalid(tmp_path: Path, event: str, name: str, value: object) -> None:
    path = play(tmp_path, look("a"), look("the end"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    number = next(n for n, line in enumerate(lines) if line["event"] == event)
    lines[number][name] = value
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with pytest.raises(StoreError, match=f"line {number + 1} is not a line of a"):
        read_trajectory(path)
    done, patch = solve(ReplaySolver(path), tmp_path / "now" / "trajectory.jsonl")
    assert (done.status, patch) == ("aborted", None)


@pytest.mark.parametrize("result", [None, [], "text"])
def test_an_end_without_a_result_is_ignored(tmp_path: Path, result: object) -> None:
    path = play(tmp_path, look("a"), look("the end"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], json.dumps({**json.loads(lines[-1]), "result": result})]) + "\n")
    assert read_trajectory(path).exit_reason is ExitReason.INTERRUPTED


def test_a_recording_without_its_task_has_no_grade(tmp_path: Path) -> None:
    path = play(tmp_path, look("a"), look("the end"))
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, *(line for line in rest if '"event": "message"' not in line)]))
    done, _ = solve(ReplaySolver(path), tmp_path / "now" / "trajectory.jsonl")
    assert "does not fit the current version: IndexError" in done.detail


def test_an_injector_s_rollout_is_replayed_the_same_way(tmp_path: Path) -> None:
    path = play(tmp_path, look("a"), look("the end"), role="injector")
    repeat(read_trajectory(path), Journal(Trajectory("", "", "", 0, ""), tmp_path / "again.jsonl"))
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()
    with pytest.raises(SettingsError, match="contains no rollout of a solver"):
        ReplaySolver(path)


def test_a_recording_without_its_last_step_is_not_replayed(tmp_path: Path) -> None:
    original = read_trajectory(play(tmp_path, look("a"), look("the end")))
    original.steps.pop()
    with pytest.raises(
        ModelError,
        match="the replay ends with model, the recording with submitted: the recording submitted at another step",
    ):
        repeat(original, Journal(Trajectory("", "", "", 0, "")))
