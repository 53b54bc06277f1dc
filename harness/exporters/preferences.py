"""Pair better and worse replies to the same prompt, for TRL's DPOTrainer and KTOTrainer.

These trainers count every token of a completion, including tool output. So a completion is one reply, and both replies
of a pair follow exactly the same prompt. The value of a reply is the mean reward of the attempts that continued from it
(a Monte Carlo estimate, as in Math-Shepherd, arXiv 2312.08935). At each prompt the best reply is paired with the worst,
the second best with the second worst, and so on while their values differ; no reply is in two pairs. A search also
records candidates whose tests failed: the reply that makes the repair is paired with each of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.exporters.conversations import shown
from harness.exporters.model_calls import Call, Message
from harness.exporters.protocol import NUMBER, OBJECTS, TEXT, TRUTH, WHOLE, Choices, Format, Group, Row
from harness.exporters.record import Record
from harness.exporters.sft import tools_of
from harness.exporters.skipped import SkipCode, SkippedError

_FAILED = -1.0
"""Reward of an unresolved attempt, as the value of a reply after which the tests fail."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to a prompt, identified by its first occurrence."""

    value: float
    """Mean reward of the attempts that gave this reply."""
    rollout: str
    call: int
    rejected: int | None = None
    """Its index among the rejected replies of the call; None for the reply that was given."""

    def message(self, record: Record) -> Message:
        """Return the message. record: of its rollout."""
        call = record.calls[self.call]
        return call.reply if self.rejected is None else call.rejected[self.rejected]


def pairs(group: Group) -> Iterator[tuple[Reply, Reply]]:
    """Yield pairs of a better and a worse reply to the same prompt, in the order of their first attempts.

    The replies are kept in a temporary database, so that a task may have any number of attempts.
    """
    with contextlib.closing(sqlite3.connect("")) as table:
        table.execute("CREATE TABLE steps (node BLOB, reply BLOB, reward REAL, rollout TEXT, call INTEGER)")
        table.execute("CREATE TABLE used (rollout TEXT PRIMARY KEY)")
        for record in group.records():
            for better, worse in _rejections(record):
                table.execute("INSERT OR IGNORE INTO used VALUES (?)", (record.id,))
                yield better, worse
            table.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", _steps(record, group))
        table.execute("CREATE INDEX nodes ON steps (node, reply)")
        nodes = "SELECT node FROM steps GROUP BY node HAVING COUNT(DISTINCT reply) > 1 ORDER BY MIN(rowid)"
        replies = "SELECT AVG(reward), rollout, call, MIN(rowid) FROM steps WHERE node = ? GROUP BY reply"
        for (node,) in table.execute(nodes):
            ranked = sorted(table.execute(replies, (node,)), key=lambda row: (-row[0], row[3]))
            for rank in range(len(ranked) // 2):
                better, worse = (Reply(*ranked[index][:3]) for index in (rank, -1 - rank))
                if better.value <= worse.value:
                    break
                used = [(better.rollout,), (worse.rollout,)]
                table.executemany("INSERT OR IGNORE INTO used VALUES (?)", used)
                yield better, worse
        unpaired = "SELECT DISTINCT rollout FROM steps WHERE rollout NOT IN (SELECT rollout FROM used) ORDER BY rowid"
        for (rollout,) in table.execute(unpaired):
            group.leave(rollout, SkippedError(SkipCode.UNPAIRED))


def _rejections(record: Record) -> Iterator[tuple[Reply, Reply]]:
    """Yield each reply of a resolved rollout with each reply that was tried in its place, and whose tests failed."""
    if record.reward is None or record.reward <= 0:
        return
    for call in record.calls:
        for index in range(len(call.rejected)):
            yield Reply(record.reward, record.id, call.i), Reply(_FAILED, record.id, call.i, index)


def _steps(record: Record, group: Group) -> Iterator[tuple[bytes, bytes, float, str, int]]:
    if not record.calls:
        group.leave(record.id, SkippedError(SkipCode.NO_CALLS))
    digests = _Digests(record)
    for call in record.calls:
        if record.reward is None or not call.prompt or not (call.trainable or record.is_demonstration):
            continue
        if call.is_malformed or call.is_cut:
            group.leave(
                f"{record.id}, call {call.i}", SkippedError(SkipCode.MALFORMED if call.is_malformed else SkipCode.CUT)
            )
            continue
        yield digests.prompt(call), digests.message(call.reply), record.reward, record.id, call.i


class _Digests:
    """Digests of messages without call ids, which differ between attempts that are otherwise the same."""

    def __init__(self, record: Record) -> None:
        self._tools = _digest(record.data["tools"])
        self._cache: dict[int, bytes] = {}

    def prompt(self, call: Call) -> bytes:
        return hashlib.sha256(self._tools + b"".join(map(self.message, call.prompt))).digest()

    def message(self, message: Message) -> bytes:
        if id(message) not in self._cache:
            (data,) = shown([message])
            data.pop("tool_call_id", None)
            for call in data.get("tool_calls", ()):
                del call["id"]
            self._cache[id(message)] = _digest(data)
        return self._cache[id(message)]


def _digest(data: Any) -> bytes:
    return hashlib.sha256(json.dumps(data).encode()).digest()


_ABOUT = {
    "task_id": TEXT,
    "role": TEXT,
    "model": TEXT,
    "repository": TEXT,
    "strategy": TEXT,
    "solve_rate": NUMBER,
    "step": WHOLE,
}


def _about(record: Record, step: int) -> Row:
    task = record.data["task"]
    return {
        "task_id": record.data["task_id"],
        "role": record.data["role"],
        "model": record.model,
        "repository": record.repository,
        "strategy": str(task.get("strategy", "")),
        "solve_rate": task.get("solve_rate"),
        "step": step,
    }


def _dpo(group: Group, choices: Choices) -> Iterator[Row]:
    for better, worse in pairs(group):
        chosen, rejected = group.record(better.rollout), group.record(worse.rollout)
        call = chosen.calls[better.call]
        yield {
            "prompt": shown(call.prompt),
            "chosen": shown([better.message(chosen)]),
            "rejected": shown([worse.message(rejected)]),
            "tools": tools_of(chosen),
            "chosen_value": better.value,
            "rejected_value": worse.value,
            "chosen_rollout_id": chosen.id,
            "rejected_rollout_id": rejected.id,
            "rejected_model": rejected.model,
            **_about(chosen, better.call),
        }


def _kto(group: Group, choices: Choices) -> Iterator[Row]:
    for pair in pairs(group):
        for label, reply in zip((True, False), pair, strict=True):
            record = group.record(reply.rollout)
            call = record.calls[reply.call]
            yield {
                "prompt": shown(call.prompt),
                "completion": shown([reply.message(record)]),
                "label": label,
                "tools": tools_of(record),
                "value": reply.value,
                "rollout_id": record.id,
                **_about(record, reply.call),
            }


_NOTES = (
    "A pair is one step: two replies to the same prompt. Their values are mean rewards of whole attempts.",
    "The trainers truncate rows to max_length=1024 tokens by default.",
)
DPO = Format(
    "dpo",
    "TRL's DPOTrainer",
    {
        **dict.fromkeys(("prompt", "chosen", "rejected", "tools"), OBJECTS),
        "chosen_value": NUMBER,
        "rejected_value": NUMBER,
        "chosen_rollout_id": TEXT,
        "rejected_rollout_id": TEXT,
        "rejected_model": TEXT,
        **_ABOUT,
    },
    _dpo,
    notes=_NOTES,
)
KTO = Format(
    "kto",
    "TRL's KTOTrainer",
    {
        "prompt": OBJECTS,
        "completion": OBJECTS,
        "label": TRUTH,
        "tools": OBJECTS,
        "value": NUMBER,
        "rollout_id": TEXT,
        **_ABOUT,
    },
    _kto,
    notes=_NOTES,
)
