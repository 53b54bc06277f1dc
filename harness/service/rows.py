"""Define the records that queries return; a field that is named after a column holds its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list."""

    items: Sequence[T]
    next: str
    """What to pass as `after` to get the following items; empty if there are no more."""


@dataclass(frozen=True, slots=True)
class _Played:
    """What self-play has made in a round, or in all rounds of a run."""

    run: str
    project: str
    episodes: int
    valid: int
    solved: int
    graded: int
    rewards: float
    rewarded: int
    tokens: int
    cost_usd: float
    stored_at: float


@dataclass(frozen=True, slots=True)
class RunRow(_Played):
    """A run of self-play: the sums over its rounds."""

    rounds: int


@dataclass(frozen=True, slots=True)
class RoundRow(_Played):
    """A round of a run."""

    round: int


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode: a bug, what became of it, and how often it was solved."""

    number: int
    run: str
    round: int
    project: str
    artifact_id: str
    injection: str
    """The attempt of a model that made the bug; empty for other injectors."""
    strategy: str
    operator: str
    file: str
    scope: str
    lines: int
    fail_to_pass: int
    order: int
    valid: bool
    check: str
    """What rejected it: a check, or an earlier step; empty if it is valid."""
    solved: int
    graded: int
    solve_rate: float | None
    reward: float | None
    tokens: int
    cost_usd: float
    seconds: float
    stored_at: float


@dataclass(frozen=True, slots=True)
class EpisodeDetails(EpisodeRow):
    """An episode with its record."""

    record: Mapping[str, Any]
    """All fields of `harness.records.episode.Episode`, with the reason of a rejection and the attempts."""
    job_id: str
    """The last job whose run it belongs to; empty for a run of another command."""


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """A stored bug."""

    id: str
    kind: str
    """`artifacts`, or `spare` if it is valid and exceeds the number that a run wanted."""
    repository: str
    tree_hash: str
    strategy: str
    operator: str
    model: str
    order: int
    parent: str
    fail_to_pass: int
    files: int
    lines: int
    stored_at: float


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A change that was tried."""

    path: str
    campaign: str
    position: int
    status: str
    strategy: str
    operator: str
    file: str
    scope: str
    line: int
    check: str
    artifact_id: str
    fail_to_pass: int
    seconds: float
    stored_at: float


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt of a solver or an injector."""

    id: str
    artifact_id: str
    """Or the id of an instance; of an injector, the bug that it made, empty if it made none that is valid."""
    role: str
    player: str
    attempt: int
    resolved: bool | None
    """By the strict rule; None without a grade."""
    tests: bool | None
    valid: bool | None
    """Whether an injector's bug is; None for solvers, and until the injector has ended."""
    reward: float | None
    reason: str
    exit_reason: str
    status: str
    steps: int
    tokens: int
    cost_usd: float
    unpriced: int
    seconds: float
    grading_s: float
    stored_at: float
    has_artifact: bool
    """Whether its bug is stored."""


@dataclass(frozen=True, slots=True)
class AttemptDetails(AttemptRow):
    """An attempt with its record."""

    record: Mapping[str, Any]
    """All fields of `harness.records.attempt.Attempt`; empty until it is graded, and for injectors."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, as it last reported itself."""

    id: str
    host: str
    pid: int
    sandbox: str
    status: str
    job_id: str
    started_at: float
    seen_at: float
    jobs_done: int
    counters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What a solver achieved, and what it cost."""

    player: str
    attempts: int
    graded: int
    resolved: int
    solve_rate: float | None
    tokens: int
    cost_usd: float
    unpriced: int
    """Calls of the model whose price is unknown."""
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckCount:
    """How many bugs a check, or an earlier step, rejected."""

    check: str
    """Empty for the valid ones."""
    bugs: int


@dataclass(frozen=True, slots=True)
class DifficultyBucket:
    """How many graded bugs have a solve rate from `low` on, and below the next bucket's; the last one has all of 1."""

    low: float
    episodes: int


@dataclass(frozen=True, slots=True)
class FunctionGap:
    """A function with the number of changes that no test noticed."""

    file: str
    scope: str
    survived: int
    tried: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store."""

    name: str
    """Its path below the folder that was listed."""
    size: int
    digest: str
    """SHA-256 of its content."""
    stored_at: float
