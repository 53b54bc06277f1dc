"""Find recorded rollouts of either role by their task, and replay them.

A truncated recording has no end and gets one: `interrupted`. An incomplete line is dropped, and so is a reply after
which nothing was written. Everything else is replayed exactly, including times and costs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl

from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.workspace import Workspace
from harness.models.protocol import hash_path
from harness.models.replay import Recording
from harness.records.messages import Sampling
from harness.records.trajectory import SCHEMA, SUBMISSIONS, ExitReason, Journal, Trajectory
from harness.records.usage import NAME
from pytest_ssr.errors import ModelError, SettingsError, StoreError
from pytest_ssr.records.decoding import decode
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.storage.store import key_of

_FILTERS = ("model", "seed")
_ROLES = {"solver": "a solver", "injector": "an injector"}


@dataclass(frozen=True, slots=True)
class _Recording:
    """A file and the data of its header."""

    path: Path
    rollout: str
    key: tuple[object, ...]
    """The task and the number of the attempt."""
    model: str
    seed: int | None

    @property
    def is_original(self) -> bool:
        """Whether this is the original: a replay lies in a folder that is not named after its rollout."""
        return self.path.parent.name == self.rollout


@dataclass(frozen=True, slots=True)
class Recordings:
    """The rollouts of one role in a folder, as of creation; files written later are not included."""

    role: ClassVar[str]

    path: Path
    """A trajectory file, or a folder of such files."""
    model: str = ""
    """Only use rollouts of this model; empty means any model."""
    seed: int | None = None
    """Only use rollouts with this seed; None prefers the requested seed if several attempts have the same number."""
    key: str = field(default="", init=False, repr=False)
    """A hash of the recordings; replays of them in the same folder do not change it."""
    _recordings: Sequence[_Recording] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the recordings; raises SettingsError if there are none to replay."""
        if not self.path.exists():
            raise SettingsError(f"{self.path} does not exist; name a trajectory file, or a folder of such files")
        files = sorted(self.path.rglob(NAME)) if self.path.is_dir() else [self.path]
        headers = [_read_header(f, self.role) for f in files]
        recordings = [r for r in headers if r is not None and self._matches(r)]
        if not recordings:
            filters = "".join(f" with {n} {getattr(self, n)}" for n in _FILTERS if getattr(self, n) not in ("", None))
            raise SettingsError(f"{self.path} contains no rollout of {_ROLES[self.role]}{filters} to replay")
        object.__setattr__(self, "_recordings", tuple(recordings))
        originals = {r.rollout for r in recordings if r.is_original}
        hashes = {(r.rollout, hash_path(r.path)) for r in recordings if r.is_original or r.rollout not in originals}
        object.__setattr__(self, "key", key_of("replay", sorted(hashes)))

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the recordings for a name on the command line: `replay:PATH`, or `replay:PATH?model=NAME&seed=N`.

        Raises SettingsError for an unknown filter, and for the same reasons as the constructor.
        """
        path, _, query = name.removeprefix("replay:").rpartition("?")
        if not path or Path(name.removeprefix("replay:")).exists():
            return cls(Path(name.removeprefix("replay:")))
        filters = dict(parse_qsl(query, keep_blank_values=True))
        seed = filters.get("seed", "")
        if not filters or set(filters) - set(_FILTERS) or (seed and not seed.isdecimal()):
            raise SettingsError(f"{name} has an unknown filter; use ?model=NAME, ?seed=N or both")
        return cls(Path(path), filters.get("model", ""), int(seed) if seed else None)

    @property
    def name(self) -> str:
        """The name that users type."""
        filters = [f"{n}={getattr(self, n)}" for n in _FILTERS if getattr(self, n) not in ("", None)]
        return f"replay:{self.path}" + (f"?{'&'.join(filters)}" if filters else "")

    def _matches(self, recording: _Recording) -> bool:
        return self.model in ("", recording.model) and self.seed in (None, recording.seed)

    def find(self, key: tuple[object, ...], seed: int) -> Path | None:
        """Return the file of a rollout by its task and number; raises SettingsError if several rollouts match."""
        matches = [r for r in self._recordings if r.key == key]
        matches = [r for r in matches if r.seed == seed] or matches
        matches = [r for r in matches if r.is_original] or matches
        if len({r.rollout for r in matches}) > 1:
            choices = ", ".join(sorted({f"?model={r.model}&seed={r.seed}" for r in matches}))
            problem = f"{self.path} contains several attempts of the same number at {key[0]}"
            raise SettingsError(f"{problem}; choose one of {choices}, or name its file")
        return matches[0].path if matches else None


def repeat(recorded: Trajectory, journal: Journal) -> Trajectory:
    """Replay a recorded rollout of either role and write it to the journal.

    Raises ModelError if the current loop produces a different rollout.
    """
    journal.adopt_header(recorded)
    if not recorded.calls or not recorded.tools:
        # No model with tools was queried: a search, a single reply, or an end before the first reply.
        calls = {call.assistant_index: call for call in recorded.calls}
        for index, message in enumerate(recorded.messages):
            journal.message(message)
            if index in calls:
                journal.call(calls[index])
        for step in recorded.steps:
            journal.step(step)
        return journal.end(recorded.exit_reason, recorded.detail, dict(recorded.result))
    recording = Recording(recorded, journal.trajectory)
    try:
        limits: dict[str, Any] = dict(recorded.provenance.get("limits", {}))
        agent = Agent(
            recording,
            recording.tools(),
            # A limit or a parameter that this release does not know changes the rollout, so both are refused.
            RolloutLimits(**{**limits, "wall_s": 1e9}),
            Sampling(**{**recorded.sampling, "seed": None}),
            str(recorded.provenance.get("observe_as", "tool")),
            recording,
            partial_result=lambda _: dict(recorded.result),
            submitted=lambda: _submitted(recorded, journal.trajectory),
        )
        system, task = recorded.messages[0].content, recorded.messages[1].content
    except (TypeError, ValueError, LookupError, SettingsError) as error:
        raise ModelError(f"the recording does not fit the current version: {type(error).__name__}: {error}") from None
    done = agent.run(system, task, Workspace(FakeSandbox(FakeSandboxProvider(), "/", {}), Limits()), journal)
    if done.exit_reason is not recorded.exit_reason:
        raise ModelError(
            f"the replay ends with {done.exit_reason}, the recording with {recorded.exit_reason}: {done.detail}"
        )
    if recorded.exit_reason is not ExitReason.INTERRUPTED:
        recording.require_same()
    return done


def _submitted(recorded: Trajectory, now: Trajectory) -> Mapping[str, object] | None:
    """Return the result of a rollout with several submissions at its end; None before."""
    is_end = len(now.calls) == len(recorded.calls)
    return dict(recorded.result) if is_end and SUBMISSIONS in recorded.result else None


def _read_header(path: Path, role: str) -> _Recording | None:
    """Return the header of a recording; None for a rollout of another role, or without a complete header.

    The rollout of a replay that had nothing to repeat is not a recording either.
    """
    try:
        with path.open(encoding="utf-8") as file:
            data = json.loads(file.readline())
        header = decode(Trajectory, data)
    except (OSError, ValueError, RecursionError, StoreError):
        return None
    seed = header.provenance.get("seed")
    if data.get("schema") != SCHEMA or header.role != role or type(seed) not in (int, type(None)):
        return None
    if header.model.startswith("replay:"):
        return None
    return _Recording(path, header.rollout_id, (header.task_id, header.attempt), header.model, seed)
