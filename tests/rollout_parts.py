"""Rollouts and stores of rollouts, made by hand, for what reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.episode import Rollout
from harness.exporters.leaving import LeftOutError
from harness.exporters.protocol import Choices, Task
from harness.exporters.record import Record
from harness.exporters.recording import Known, record_of
from harness.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolCall, Usage
from harness.trajectory import ExitReason, Journal, ModelCall, Trajectory
from pytest_ssr.reasons import Reason, ReasonCode
from pytest_ssr.snapshot import STORE_MARK

AS_TOLD = Reason(ReasonCode.TESTS_FAIL, "as told")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "runs a command",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]
TREE = "a" * 40


def rendered(message: Message) -> list[int]:
    """A template of bytes: what a message is as tokens."""
    calls = json.dumps([[c.name, c.raw] for c in message.tool_calls]) if message.tool_calls else ""
    return list(f"<{message.role}>{message.content}{calls}</>".encode())


def call_of(command: str, place: int = 0) -> ToolCall:
    return ToolCall.parse(f"c{place}", "bash", json.dumps({"command": command}))


def played(
    rollout_id: str = "r1",
    commands: Sequence[str] = ("ls", "make"),
    *,
    task: str = "t1",
    role: str = "solver",
    model: str = "m",
    attempt: int = 0,
    ids: bool = True,
    sampled: bool = True,
    end: ExitReason = ExitReason.SUBMITTED,
    said: str = "é!",
    path: Path | None = None,
) -> Trajectory:
    """A rollout that calls a tool for each command, by the template above; what tools say depends on the command."""
    journal = Journal(Trajectory(rollout_id, task, role, attempt, model, tools=TOOLS, sampling={"seed": 1}), path)
    journal.message(Message(SYSTEM, "be brief"))
    journal.message(Message(USER, f"repair {task}"))
    for i, command in enumerate(commands):
        sent = tuple(range(len(journal.trajectory.messages)))
        prompt = [t for m in journal.trajectory.messages for t in rendered(m)] + list(b"<assistant>")
        message = Message(ASSISTANT, said, (call_of(command, i),))
        reply = rendered(message)[len(b"<assistant>") :]
        place = journal.message(message)
        usage = Usage(len(prompt), len(reply))
        told = (tuple(prompt), tuple(reply), (-0.5,) * len(reply)) if ids else (None, None, None)
        journal.call(ModelCall(i, sent, place, "tool_calls", usage, None, 0.1, f"q{i}", *told, sampled))
        journal.message(Message(TOOL, f"output of {command}", tool_call_id=f"c{i}"))
    return journal.end(end, result={"patch": "diff --git a/x b/x\n"})


def windowed() -> Trajectory:
    """A rollout of which a middle turn was left out of the last prompt, and whose first call cannot be read."""
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    journal.message(Message(USER, "go"))
    for i in range(3):
        call = ToolCall.parse("x", "bash", "{oh") if i == 0 else call_of("ls", i)
        place = len(journal.trajectory.messages)
        gap = {**Message(USER, "[1 earlier turn is left out here]").to_json(), "left_out": [1, 3]}
        sent: Any = tuple(range(place)) if i < 2 else (0, gap, 3, 4)
        journal.message(Message(ASSISTANT, f"turn {i}", (call,), thoughts={"reasoning": "hm"} if i == 1 else {}))
        journal.call(ModelCall(i, sent, place, "stop", Usage(9, 9), None, 0.0, "", None, None, None))
        journal.message(Message(TOOL, f"saw {i}", tool_call_id=call.id))
    return journal.end(ExitReason.SUBMITTED)


def record(rollout: Trajectory | None = None, reward: float | None = 1.0, **known: Any) -> Record:
    task = {"repository": "calc", "tree_hash": TREE, "strategy": "mutation", "solve_rate": 0.5, "graded": 2}
    return record_of(rollout or played(), Known({**task, **known.pop("task", {})}, reward, **known))


@dataclass
class Several:
    """Records as formats see them."""

    found: Sequence[Record]
    task: Task | None = None
    left: list[tuple[str, str]] = field(default_factory=list)

    def records(self) -> Any:
        return iter(self.found)

    def record(self, rollout: str) -> Record:
        return next(r for r in self.found if r.id == rollout)

    def leave(self, what: str, error: LeftOutError) -> None:
        self.left.append((what, str(error)))


def rows(form: Any, *found: Record, **choices: Any) -> list[dict[str, Any]]:
    return list(form.rows(Several(found), Choices(**choices)))


def store(folder: Path) -> Path:
    """A store without anything in it."""
    folder.mkdir(parents=True)
    (folder / STORE_MARK).write_text('{"store_version": 1}')
    return folder


def keep(
    folder: Path, rollout_id: str, resolved: bool | None = True, *, grade: dict[str, Any] | None = None, **how: Any
) -> Path:
    """Put a rollout with its grade into a store; returns its folder."""
    place = folder / "rollouts" / rollout_id
    done = played(rollout_id, path=place / "trajectory.jsonl", **how)
    reward = None if resolved is None else 1.0 if resolved else -1.0
    told = Rollout(
        rollout_id, done.attempt, done.model, 1, resolved, reward, AS_TOLD, str(done.exit_reason), done.status, resolved
    )
    (place / "rollout.json").write_text(json.dumps({**told.to_json(), **(grade or {})}))
    return place


def add_task(folder: Path, task: str = "t1", repository: str = "calc", tree: str = TREE, **info: Any) -> Path:
    """Put what is claimed of an artifact into a store, without its five files."""
    place = folder / "artifacts" / task
    place.mkdir(parents=True)
    told = {"schema_version": 1, "repository": repository, "tree_hash": tree, "injector": {"strategy": "mutation"}}
    (place / "artifact.json").write_text(json.dumps({**told, **info}))
    return place
