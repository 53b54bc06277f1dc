"""The record of one attempt of one agent at one task: `ssr.rollout/1`.

It is written line by line during the attempt, so that a killed run keeps everything up to then: a header, then each
message, model call and step, then an end. A file without an end is read as an aborted rollout.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from harness.records.messages import Message, Reply, Usage
from harness.storage.atomic_write import write_text
from pytest_ssr.errors import StoreError, StoreWriteError
from pytest_ssr.records.decoding import decode

SCHEMA = "ssr.rollout/1"
REWARDS = "rewards.json"
"""The file beside a trajectory with the rewards of an environment's episode."""
Sent = int | Mapping[str, Any]
"""A message as it was sent: an index into the rollout's messages, or a message that stands in for others."""


class ExitReason(StrEnum):
    """Why a rollout ended."""

    SUBMITTED = "submitted"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    CONTEXT = "context"
    FORMAT = "format"
    """Too many consecutive replies that call no tool."""
    LOOP = "loop"
    """The same call, or the same short cycle of calls, was repeated too often with the same results."""
    UNABLE = "unable"
    """The solver's method does not apply to this task."""
    MODEL = "model"
    UNAVAILABLE = "unavailable"
    """The model's server was out of reach, or refused requests, for a while."""
    INFRA = "infra"
    INTERRUPTED = "interrupted"


_STATUS = {
    ExitReason.SUBMITTED: "completed",
    ExitReason.FORMAT: "failed",
    ExitReason.LOOP: "failed",
    ExitReason.UNABLE: "failed",
    ExitReason.MODEL: "aborted",
    ExitReason.UNAVAILABLE: "aborted",
    ExitReason.INFRA: "aborted",
    ExitReason.INTERRUPTED: "aborted",
}


def ending_of(exit_reason: str) -> str:
    """Return how a rollout with this exit reason ends: completed, truncated, failed or aborted; empty if unknown."""
    known = exit_reason in list(ExitReason)
    return _STATUS.get(ExitReason(exit_reason), "truncated") if known else ""


def is_truncated(reason: ExitReason) -> bool:
    """Return whether a limit ended the rollout."""
    return reason not in _STATUS


SUBMISSIONS = "submissions"
"""The key of a result: the number of submissions of a rollout that may submit several times."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to the model, with everything needed to train on its reply."""

    i: int
    """Its number in the rollout."""
    sent: tuple[Sent, ...]
    """The messages of the prompt, in order."""
    assistant_index: int
    """The index of the reply in the rollout's messages."""
    finish_reason: str
    usage: Usage
    cost_usd: float | None
    latency_s: float
    request_id: str
    prompt_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    trainable: bool = True
    """False for a reply that comes from a script instead of a model."""
    cached: bool = False
    """Whether the reply came from a cache, and so was paid for earlier."""
    rejected: tuple[Message, ...] = ()
    """Replies that a search tried in place of this one, and whose tests failed."""

    @classmethod
    def of(cls, i: int, sent: Sequence[Sent], assistant_index: int, reply: Reply) -> ModelCall:
        """Return the record of a call that got this reply."""
        return cls(
            i,
            tuple(sent),
            assistant_index,
            reply.finish_reason,
            reply.usage,
            reply.cost_usd,
            reply.latency_s,
            reply.request_id,
            reply.prompt_ids,
            reply.token_ids,
            reply.logprobs,
            reply.sampled,
            reply.cached,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One action and its observation; a reply that calls no tool is also a step."""

    id: int
    """Its number; the scores of the process reward refer to it."""
    call: int
    """The model call that requested it."""
    kind: str
    """tool, submit or format-error."""
    tool: str = ""
    """The tool's name."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The tool's arguments."""
    observation_index: int = -1
    """The index of the observation in the rollout's messages; -1 without one."""
    exit_code: int | None = None
    """The exit code of a command; None if a limit ended it, or if the action is not a command."""
    limit: str = ""
    """The limit that ended it; empty if none did."""
    seconds: float = 0.0
    """How long it took, in seconds."""
    elided_chars: int = 0
    """Number of characters of its output that were not shown to the model."""


@dataclass(slots=True)
class Trajectory:
    """A rollout; it grows while it is recorded."""

    rollout_id: str
    task_id: str
    role: str
    """injector or solver."""
    attempt: int
    model: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = field(default_factory=list)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What the result depends on: the version of the code, the sandbox, hashes, the id of the model on its server."""
    messages: list[Message] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    exit_reason: ExitReason = ExitReason.INTERRUPTED
    detail: str = ""
    """Details of how it ended."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What the rollout produced: a patch, an artifact's id."""

    @property
    def status(self) -> str:
        """completed, truncated, failed or aborted."""
        return _STATUS.get(self.exit_reason, "truncated")

    @property
    def usage(self) -> Usage:
        """Tokens of all calls."""
        return sum((c.usage for c in self.calls), Usage())

    @property
    def cost_usd(self) -> float:
        """Cost in USD of all calls whose price is known."""
        return sum(c.cost_usd or 0.0 for c in self.calls)

    @property
    def on_policy(self) -> bool:
        """Whether every trainable call has its token ids and log-probabilities."""
        trainable = [c for c in self.calls if c.trainable]
        return bool(trainable) and all(c.token_ids is not None and c.logprobs is not None for c in trainable)

    def header(self) -> dict[str, Any]:
        """Return the fields that are known before the rollout begins."""
        names = ("rollout_id", "task_id", "role", "attempt", "model", "sampling", "tools", "provenance")
        return {"schema": SCHEMA, **{n: getattr(self, n) for n in names}}

    def ending(self) -> dict[str, Any]:
        """Return the fields that are known at the end."""
        return {
            "exit_reason": str(self.exit_reason),
            "status": self.status,
            "detail": self.detail,
            "result": dict(self.result),
        }


def is_submitted(rollout: Trajectory) -> bool:
    """Return whether something was submitted, as the last action or, if several submissions are allowed, before."""
    return rollout.exit_reason is ExitReason.SUBMITTED or SUBMISSIONS in rollout.result


class Journal:
    """Writes a trajectory to a file while it grows; without a path, writes nothing.

    The header is written together with the first event, so that a solver can still describe its tools and settings.
    """

    def __init__(self, trajectory: Trajectory, path: Path | None = None) -> None:
        """Raises StoreWriteError when the file cannot be written."""
        self.trajectory = trajectory
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            with self._store_errors():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        self._has_header = self._ended = False

    def describe(
        self, *, tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any], **provenance: object
    ) -> None:
        """Set the tools, sampling and provenance of the header; call it before the first event."""
        self.trajectory.tools, self.trajectory.sampling = list(tools), dict(sampling)
        self.trajectory.provenance = {**self.trajectory.provenance, **provenance}

    def adopt_header(self, recorded: Trajectory) -> None:
        """Adopt the header of a recorded rollout; call it before the first event."""
        for name, value in recorded.header().items():
            if name != "schema":
                setattr(self.trajectory, name, value)

    def message(self, message: Message) -> int:
        """Add a message and return its index."""
        self.trajectory.messages.append(message)
        self._write("message", message.to_json())
        return len(self.trajectory.messages) - 1

    def call(self, call: ModelCall) -> None:
        """Add a model call."""
        self.trajectory.calls.append(call)
        self._write("call", asdict(call))

    def step(self, step: Step) -> None:
        """Add a step."""
        self.trajectory.steps.append(step)
        self._write("step", asdict(step))

    @property
    def ended(self) -> bool:
        """Whether the record is closed."""
        return self._ended

    def end(self, reason: ExitReason, detail: str = "", result: Mapping[str, Any] | None = None) -> Trajectory:
        """Close the record and return it; only the first call has an effect."""
        if self._ended:
            return self.trajectory
        self._ended = True
        self.trajectory.exit_reason, self.trajectory.detail = reason, detail
        self.trajectory.result = result or {}
        self._write("end", self.trajectory.ending())
        if self._file is not None:
            with self._store_errors():
                os.fsync(self._file.fileno())
                self._file.close()
            self._file = None
        return self.trajectory

    def write_sibling(self, name: str, text: str) -> None:
        """Write a file of this name next to the trajectory; raises StoreWriteError if that fails."""
        if self._path is not None:
            with self._store_errors():
                write_text(self._path.parent / name, text)

    def _write(self, kind: str, data: Mapping[str, Any]) -> None:
        if not self._has_header:
            self._has_header = True
            self._write("rollout", self.trajectory.header())
        if self._file is not None:
            with self._store_errors():
                self._file.write(json.dumps({"event": kind, **data}) + "\n")
                self._file.flush()

    @contextlib.contextmanager
    def _store_errors(self) -> Any:
        try:
            yield
        except OSError as error:
            raise StoreWriteError(f"cannot write {self._path}: {error.strerror or error}") from None


def texts_of(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value, without the names of its fields: what a search in a trajectory looks at."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from texts_of(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_of(inner)


def read_trajectory(path: Path) -> Trajectory:
    """Return the trajectory in a file, which may be truncated; raises StoreError for any other file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    trajectory: Trajectory | None = None
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            trajectory = _add_event(trajectory, data.pop("event"), data)
        except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if number == len(lines) and trajectory is not None:
                break  # A killed run may leave an incomplete last line.
            raise StoreError(f"{path}: line {number} is not a line of a {SCHEMA} file: {error}") from None
    if trajectory is None:
        raise StoreError(f"{path} is empty; a {SCHEMA} file begins with its header")
    return trajectory


@dataclass(frozen=True, slots=True)
class _End:
    """The last line of a finished rollout."""

    exit_reason: ExitReason
    detail: str
    result: Mapping[str, Any]


def _add_event(trajectory: Trajectory | None, kind: str, data: Mapping[str, Any]) -> Trajectory:
    if trajectory is None:
        if kind != "rollout" or data["schema"] != SCHEMA:
            raise ValueError(f"it is not the header of a {SCHEMA} file")
        return decode(Trajectory, data)
    if kind == "message":
        trajectory.messages.append(decode(Message, data))
    elif kind == "call":
        trajectory.calls.append(decode(ModelCall, data))
    elif kind == "step":
        trajectory.steps.append(decode(Step, data))
    elif kind == "end":
        end = decode(_End, data)
        trajectory.exit_reason, trajectory.detail, trajectory.result = end.exit_reason, end.detail, end.result
    else:
        raise ValueError(f"{kind!r} is not an event")
    return trajectory
