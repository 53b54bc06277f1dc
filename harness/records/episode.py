"""Define the record of one bug: its origin, its verdict, the attempts at it and the injector's reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from harness.records.attempt import Attempt
from harness.records.rewards import ALPHA, injector_reward, solve_rate
from pytest_ssr.errors import StoreError
from pytest_ssr.records.check_reasons import CheckReason, explained, reason_from_json, reason_to_json
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.reasons import Rule

SCHEMA_VERSION = 3


class RefusalCode(StrEnum):
    """Why no solver is run on a valid bug."""

    FIX_READABLE = "fix-readable"
    """A solver could read the fix: an attempt would prove nothing."""
    PROJECT_UNUSABLE = "project-unusable"
    """The task cannot be opened."""
    UNKNOWN = "unknown"
    """An earlier release recorded only a text."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no solver was run on a valid bug."""

    code: RefusalCode
    text: str
    """For people, with the location and what to do."""

    @classmethod
    def from_json(cls, data: object) -> Refusal | None:
        """Read plain data back; None for None and for the empty text of an earlier release.

        Raises StoreError for other data.
        """
        if data is None or data == "":
            return None
        return cls(RefusalCode.UNKNOWN, data) if isinstance(data, str) else decode(cls, data)


@dataclass(frozen=True, slots=True)
class Episode:
    """The history of one bug: its origin, its verdict and the rollouts on it."""

    project: str
    artifact_id: str
    """Empty if the bug is not valid."""
    round: int
    order: int
    parent: str
    strategy: str
    operator: str
    path: str
    scope: str
    lines: int
    """Lines that the bug adds and removes."""
    fail_to_pass: int
    valid: bool
    reason: CheckReason | None
    """Why the bug is not valid; None if it is."""
    check: str = ""
    """The step that rejected the bug; empty if it is valid, or if there was no artifact to check."""
    refused: Refusal | None = None
    """Why no solver was run on the bug although it is valid; None if one was."""
    injection: str = ""
    """The id of the attempt of a model that made the bug; empty for other injectors, and in earlier records."""
    repeated: bool = False
    """Whether a model repeated an earlier change: its usage counts, the bug does not count twice."""
    change: str = ""
    """A hash of the bug's diff; an empty string if it has none."""
    tokens: int = 0
    """Of the model that injected it, like the next three fields."""
    cost_usd: float = 0.0
    unpriced: int = 0
    estimated: int = 0
    seconds: float = 0.0
    """Wall time of the injection and its validation, in seconds."""
    rollouts: tuple[Attempt, ...] = ()

    @property
    def rejected_by(self) -> str:
        """The step that rejected the bug, or the code of the reason; empty if the bug is valid."""
        return self.check or (str(self.reason.code) if self.reason is not None else "")

    @property
    def counts(self) -> bool:
        """Whether this is a trial of a distinct bug."""
        return not (self.valid and self.repeated)

    @property
    def rate(self) -> float | None:
        """Resolved attempts divided by graded attempts."""
        return solve_rate([r.verdict for r in self.rollouts])

    def by(self, rule: Rule) -> Episode:
        """Return the episode with the verdicts and rewards of another rule."""
        return replace(self, rollouts=tuple(rollout.by(rule) for rollout in self.rollouts))

    def reward(self, *, alpha: float = ALPHA, kind: str = "solve-rate") -> float | None:
        """Return the injector's reward; None for a second-order bug, which nobody injected, and for a repeated one."""
        if self.order > 1 or not self.counts:
            return None
        return injector_reward(self.valid, self.rate, alpha=alpha, kind=kind)

    def to_json(self, *, alpha: float = ALPHA, kind: str = "solve-rate") -> dict[str, Any]:
        """Return the record as plain data for JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            **reason_to_json(self.reason),
            "reason": explained(self.check, self.reason),
            "rollouts": [r.to_json() for r in self.rollouts],
            "solve_rate": self.rate,
            "injector_reward": self.reward(alpha=alpha, kind=kind),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Episode | None:
        """Return the record that `to_json` wrote; None if it has another schema version or is incomplete."""
        try:
            items = [Attempt.from_json({"schema_version": SCHEMA_VERSION, **item}) for item in data["rollouts"]]
            rollouts = tuple(r for r in items if r is not None)
            own = {
                "reason": reason_from_json(data),
                "refused": Refusal.from_json(data.get("refused")),
                "rollouts": rollouts,
            }
            episode = decode(cls, {**data, **own}, version=SCHEMA_VERSION)
        except (AttributeError, KeyError, TypeError, StoreError):
            return None
        return episode if len(rollouts) == len(items) else None


def count_ungraded(episodes: Sequence[Episode]) -> int:
    """Return how many attempts in these episodes have no grade."""
    return sum(r.verdict is None for e in episodes for r in e.rollouts)


def count_graded(episodes: Sequence[Episode]) -> tuple[int, int]:
    """Return the numbers of resolved and of graded attempts in these episodes."""
    outcomes = [r.verdict for e in episodes for r in e.rollouts if r.verdict is not None]
    return sum(outcomes), len(outcomes)
