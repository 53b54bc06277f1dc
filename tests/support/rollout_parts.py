"""Build rollouts and stores of rollouts for tests of code that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.exporters.protocol import Choices, Task
from harness.exporters.record import Record
from harness.exporters.record_builder import RolloutContext, record_of
from harness.exporters.skipped import SkipCode, SkippedError
from harness.records.attempt import Attempt
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolCall, Usage
from harness.records.trajectory import ExitReason, Journal, ModelCall, Trajectory
from pytest_ssr.options import STORE_MARK
from pytest_ssr.records.reasons import Reason, ReasonCode

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
Encode = Callable[[str], list[int]]


def _to_bytes(text: str) -> list[int]:
    return list(text.encode())


def rendered(message: Message, encode: Encode = _to_bytes) -> list[int]:
    """Return the tokens of a message by a template, by default of bytes."""
    calls = json.dumps([[c.name, c.raw] for c in message.tool_calls]) if message.tool_calls else ""
    return [*encode(f"<{message.role}>"), *encode(f"{message.content}{calls}</>")]


def call_of(command: str, index: int = 0) -> ToolCall:
    return ToolCall.parse(f"c{index}", "bash", json.dumps({"command": command}))


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
    encode: Encode = _to_bytes,
) -> Trajectory:
    """Return a rollout with one tool call for each command, tokenized by `rendered`; outputs depend on the command."""
    journal = Journal(Trajectory(rollout_id, task, role, attempt, model, tools=TOOLS, sampling={"seed": 1}), path)
    journal.message(Message(SYSTEM, "be brief"))
    journal.message(Message(USER, f"repair {task}"))
    for i, command in enumerate(commands):
        sent = tuple(range(len(journal.trajectory.messages)))
        prompt = [t for m in journal.trajectory.messages for t in rendered(m, encode)] + encode("<assistant>")
        message = Message(ASSISTANT, said, (call_of(command, i),))
        reply = rendered(message, encode)[len(encode("<assistant>")) :]
        index = journal.message(message)
        usage = Usage(len(prompt), len(reply))
        token_data = (tuple(prompt), tuple(reply), (-0.5,) * len(reply)) if ids else (None, None, None)
        journal.call(ModelCall(i, sent, index, "tool_calls", usage, None, 0.1, f"q{i}", *token_data, sampled))
        journal.message(Message(TOOL, f"output of {command}", tool_call_id=f"c{i}"))
    return journal.end(end, result={"patch": "diff --git a/x b/x\n"})


def windowed() -> Trajectory:
    """Return a rollout whose last prompt omits a middle turn, and whose first call cannot be parsed."""
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    journal.message(Message(USER, "go"))
    for i in range(3):
        call = ToolCall.parse("x", "bash", "{oh") if i == 0 else call_of("ls", i)
        index = len(journal.trajectory.messages)
        gap = {**Message(USER, "[1 earlier turn is left out here]").to_json(), "left_out": [1, 3]}
        sent: Any = tuple(range(index)) if i < 2 else (0, gap, 3, 4)
        journal.message(Message(ASSISTANT, f"turn {i}", (call,), thoughts={"reasoning": "hm"} if i == 1 else {}))
        journal.call(ModelCall(i, sent, index, "stop", Usage(9, 9), None, 0.0, "", None, None, None))
        journal.message(Message(TOOL, f"saw {i}", tool_call_id=call.id))
    return journal.end(ExitReason.SUBMITTED)


def record(rollout: Trajectory | None = None, reward: float | None = 1.0, **known: Any) -> Record:
    task = {"repository": "calc", "tree_hash": TREE, "strategy": "mutation", "solve_rate": 0.5, "graded": 2}
    return record_of(rollout or played(), RolloutContext({**task, **known.pop("task", {})}, reward, **known))


@dataclass
class Several:
    """A group of records as formats receive it."""

    given: Sequence[Record]
    task: Task | None = None
    left: list[tuple[str, str]] = field(default_factory=list)
    codes: list[SkipCode] = field(default_factory=list)

    def records(self) -> Any:
        return iter(self.given)

    def record(self, rollout: str) -> Record:
        return next(r for r in self.given if r.id == rollout)

    def leave(self, name: str, error: SkippedError) -> None:
        self.left.append((name, str(error)))
        self.codes.append(error.code)


def rows(form: Any, *records: Record, **choices: Any) -> list[dict[str, Any]]:
    return list(form.rows(Several(records), Choices(**choices)))


def store(folder: Path) -> Path:
    """Create an empty store."""
    folder.mkdir(parents=True)
    (folder / STORE_MARK).write_text('{"store_version": 1}')
    return folder


def keep(
    folder: Path, rollout_id: str, resolved: bool | None = True, *, grade: dict[str, Any] | None = None, **how: Any
) -> Path:
    """Write a rollout with its grade into a store; return its folder."""
    target = folder / "rollouts" / rollout_id
    done = played(rollout_id, path=target / "trajectory.jsonl", **how)
    reward = None if resolved is None else 1.0 if resolved else -1.0
    rollout = Attempt(
        done.task_id,
        done.model,
        AS_TOLD,
        attempt=done.attempt,
        id=rollout_id,
        seed=1,
        resolved=resolved,
        tests=resolved,
        reward=reward,
        exit_reason=str(done.exit_reason),
        ending=done.status,
    )
    (target / "rollout.json").write_text(json.dumps({**rollout.to_json(), **(grade or {})}))
    return target


def add_task(folder: Path, task: str = "t1", repository: str = "calc", tree: str = TREE, **info: Any) -> Path:
    """Write the metadata of an artifact into a store, without its five files."""
    target = folder / "artifacts" / task
    target.mkdir(parents=True)
    data = {"schema_version": 1, "repository": repository, "tree_hash": tree, "injector": {"strategy": "mutation"}}
    (target / "artifact.json").write_text(json.dumps({**data, **info}))
    return target
