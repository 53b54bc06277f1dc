"""Define the records of a leaderboard: attempts of solvers, tries of injectors, and the runs they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from harness.leaderboard.escaping import clean, clean_flag
from harness.records.attempt import Attempt
from pytest_ssr.records.reasons import UNCERTAIN, Flag, FlagCode


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One attempt of a solver at a task as boards count it, in text that UTF-8 can encode."""

    solver: str
    task: str
    """The id of a bug, or of an instance that was made from none."""
    number: int
    """Counted from 0."""
    run: str
    """The label of its run."""
    key: str
    """Identifies the attempt: the rollout's id, or a hash of the submitted patch and its grade."""
    repo: str
    """Empty if unknown."""
    status: str
    reason: str
    flags: tuple[Flag, ...] = ()
    forged: bool = False
    unpriced: int = 0
    """Number of calls with unknown price."""
    estimated: int = 0
    """Number of calls with estimated tokens."""
    created_at: str = ""
    """The time at which the task was made (ISO 8601); empty if unknown."""
    cost_usd: float = -1.0
    """Below 0 if unknown, as are the next three."""
    tokens: int = -1
    steps: int = -1
    seconds: float = -1.0
    """Wall time of the attempt, without grading."""

    @classmethod
    def of(cls, attempt: Attempt, *, run: str, repo: str, task: str = "") -> Entry:
        """Return the entry of a recorded attempt; task: its id if the record lacks it."""
        # A prediction by an external mini-swe-agent has usage, but no time; other predictions have neither.
        has_usage = bool(attempt.id or attempt.exit_reason)
        reason = clean(attempt.reason.text)
        return cls(
            solver=clean(attempt.solver),
            task=clean(attempt.artifact_id or attempt.task or task),
            number=attempt.attempt,
            run=run,
            key=clean(attempt.id) or _digest(clean(attempt.patch_sha256), attempt.status, reason),
            repo=clean(repo),
            status=str(attempt.status),
            reason=reason,
            flags=tuple(map(clean_flag, attempt.flags)),
            forged=attempt.forged,
            unpriced=attempt.unpriced,
            estimated=attempt.estimated,
            created_at=clean(attempt.created_at),
            cost_usd=attempt.cost_usd if has_usage and not attempt.unpriced else -1.0,
            tokens=attempt.tokens if has_usage else -1,
            steps=attempt.steps if has_usage else -1,
            seconds=attempt.seconds if attempt.id else -1.0,
        )

    @property
    def resolved(self) -> bool | None:
        """Whether the attempt is resolved; None if it has no grade: it is missing, never a failure."""
        return None if self.status in MISSING else self.status == RESOLVED

    @property
    def flagged(self) -> bool:
        """Whether the patch changed tests."""
        return any(flag.code is FlagCode.TESTS_RESTORED for flag in self.flags)

    @property
    def unsure(self) -> bool:
        """Whether a flag marks the grade as less certain, or as different from another grader's."""
        return any(flag.code in UNCERTAIN for flag in self.flags)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


RESOLVED = "resolved"
INCOMPLETE = "incomplete"
MISSING = frozenset({"infra", "ambiguous", INCOMPLETE})
"""Statuses without a grade: a fault of the machine, a possible one, and an attempt that was never submitted."""


@dataclass(frozen=True, slots=True, order=True)
class Try:
    """One try of an injector to make a bug."""

    injector: str
    project: str
    artifacts: tuple[str, ...]
    """Sorted ids of the bug: runs may have weakened the tests in different ways. Empty if the bug is not valid."""
    run: str
    """STORE#RUN before deduplication over the runs of a store, STORE after it."""
    valid: bool
    operator: str
    path: str
    scope: str
    change: str
    """A hash of the diff; an empty string if it has none."""
    lines: int
    tokens: int
    cost_usd: float
    unpriced: int
    seconds: float
    """Wall time of the injection and the checks."""
    rewards: tuple[float, ...] = ()
    """One reward, or none if no attempt at the bug has a grade."""


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """A run that results come from."""

    label: str
    kind: str
    """results, swe-bench, harbor or play."""
    attempts: int
    tries: int = 0
    absent: int = 0
    """Number of planned attempts that have not been made."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all runs, sorted."""

    runs: tuple[Run, ...]
    attempts: tuple[Entry, ...]
    tries: tuple[Try, ...]

    @classmethod
    def of(cls, runs: Iterable[Run], attempts: Iterable[Entry], tries: Iterable[Try] = ()) -> Results:
        """Return the results sorted, so that the order in which they were read is irrelevant."""
        return cls(tuple(sorted(runs)), tuple(sorted(attempts)), tuple(sorted(tries)))
