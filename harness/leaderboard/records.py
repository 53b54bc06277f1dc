"""What a leaderboard is made of, as records: attempts of solvers, tries of injectors, and the runs they come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_ssr.reasons import UNCERTAIN, Flag


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One attempt of a solver at a task, and its grade."""

    solver: str
    task: str
    """An instance's id, or a bug's."""
    number: int
    """Counted from 0."""
    run: str
    """The label of the run it comes from."""
    key: str
    """What tells it from another attempt: the rollout's id, or a hash of what was handed in."""
    repo: str
    """Empty where it is not known."""
    status: str
    reason: str
    flags: tuple[Flag, ...] = ()
    forged: bool = False
    unpriced: int = 0
    """Calls whose price is not known."""
    estimated: int = 0
    """Calls whose tokens are an estimate."""
    created_at: str = ""
    """When the task was made (ISO 8601), where that is known."""
    cost_usd: float = -1.0
    """Like the three that follow, below 0 where it is not known."""
    tokens: int = -1
    steps: int = -1
    seconds: float = -1.0
    """Wall time of the attempt without its grade."""

    @property
    def resolved(self) -> bool | None:
        """Whether it is resolved; None without a grade, which is missing and never a failure."""
        return None if self.status in MISSING else self.status == RESOLVED

    @property
    def flagged(self) -> bool:
        """Whether the patch changed tests."""
        return any(flag.code not in UNCERTAIN for flag in self.flags)

    @property
    def unsure(self) -> bool:
        """Whether a flag says that the grade is less certain, or that another grader's would differ."""
        return any(flag.code in UNCERTAIN for flag in self.flags)


RESOLVED = "resolved"
INCOMPLETE = "incomplete"
MISSING = frozenset({"infra", "ambiguous", INCOMPLETE})
"""Statuses without a grade: a fault of ours, one that may be ours, and what was never handed in."""


@dataclass(frozen=True, slots=True, order=True)
class Try:
    """One try of an injector at a bug of its own."""

    injector: str
    project: str
    artifacts: tuple[str, ...]
    """Ids of the bug, sorted: runs may have weakened the tests in different ways. Empty for what is not valid."""
    run: str
    """STORE#RUN until what runs of a store share is sorted out, then STORE."""
    valid: bool
    operator: str
    path: str
    scope: str
    change: str
    """A hash of the diff; empty where there is none."""
    lines: int
    tokens: int
    cost_usd: float
    unpriced: int
    seconds: float
    """Wall time of the injection and the proof."""
    rewards: tuple[float, ...] = ()
    """One, or none where no attempt at it has a grade."""


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """Where results come from."""

    label: str
    kind: str
    """results, swe-bench or play."""
    attempts: int
    tries: int = 0
    absent: int = 0
    """Attempts that it was to make and has not made."""


@dataclass(frozen=True, slots=True)
class Results:
    """All that was read, in an order of its own."""

    runs: tuple[Run, ...]
    attempts: tuple[Attempt, ...]
    tries: tuple[Try, ...]

    @classmethod
    def of(cls, runs: Iterable[Run], attempts: Iterable[Attempt], tries: Iterable[Try] = ()) -> Results:
        """Return them sorted: the order in which they were read decides nothing."""
        return cls(tuple(sorted(runs)), tuple(sorted(attempts)), tuple(sorted(tries)))
