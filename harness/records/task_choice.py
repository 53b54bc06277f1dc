"""Decide by the figures of an audit which tasks count: what is not known to be good does not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class LeftOut(StrEnum):
    """Why a task does not pass an audit."""

    NOT_AUDITED = "not-audited"
    """It has no card, or a card without an audit."""
    NOT_SOUND = "not-sound"
    SHARPNESS_UNKNOWN = "sharpness-unknown"
    NOT_SHARP = "not-sharp"
    """Its tests notice too few changes of its solution."""


@dataclass(frozen=True, slots=True)
class AuditedTask:
    """What an audit has found out about a task, as far as choices depend on it."""

    is_sound: bool | None
    """None if it is unknown."""
    sharpness: float | None
    """None if it is unknown."""


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """Which tasks pass an audit."""

    audited: Mapping[str, AuditedTask]
    """By the name of a task; a bug may have two, its own and that of its row."""
    min_sharpness: float | None = None
    """None if only soundness decides."""

    def __str__(self) -> str:
        """Return the rule in a few words."""
        return "sound" if self.min_sharpness is None else f"sound, sharpness of at least {self.min_sharpness:g}"

    def find(self, *names: str) -> AuditedTask | None:
        """Return what the audit found out about a task. names: those that it may have; empty ones are skipped."""
        return next((self.audited[name] for name in names if name and name in self.audited), None)

    def sharpness(self, *names: str) -> float | None:
        """Return the sharpness of a task; None if it is unknown."""
        found = self.find(*names)
        return found.sharpness if found is not None else None

    def problem(self, *names: str) -> LeftOut | None:
        """Return why a task does not pass; None if it does."""
        found = self.find(*names)
        if found is None or found.is_sound is None:
            return LeftOut.NOT_AUDITED
        if not found.is_sound:
            return LeftOut.NOT_SOUND
        if self.min_sharpness is None:
            return None
        if found.sharpness is None:
            return LeftOut.SHARPNESS_UNKNOWN
        return LeftOut.NOT_SHARP if found.sharpness < self.min_sharpness else None

    def reason(self, *names: str) -> LeftOut | None:
        """Return why a command leaves a task out; None if it keeps it.

        Without a least sharpness, only what is known to be unsound is left out: tasks without a card stay.
        """
        problem = self.problem(*names)
        return problem if self.min_sharpness is not None or problem is LeftOut.NOT_SOUND else None


@dataclass(slots=True)
class ChoiceCounts:
    """How many tasks a choice keeps, and how many it leaves out for each reason."""

    choice: TaskChoice
    kept: int = 0
    unknown: int = 0
    """Of those that are kept: how many have no audit."""
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    def keeps(self, *names: str) -> bool:
        """Count a task, and return whether it is kept. names: those that it may have."""
        if (reason := self.choice.reason(*names)) is not None:
            self.left_out[reason] += 1
            return False
        self.kept += 1
        self.unknown += self.choice.problem(*names) is LeftOut.NOT_AUDITED
        return True

    @property
    def total(self) -> int:
        """How many tasks were counted."""
        return self.kept + self.left_out.total()

    @property
    def line(self) -> str:
        """The counts as one line."""
        parts = [f"the audit leaves out {self.left_out.total()} of {self.total} tasks{in_brackets(self.left_out)}"]
        if self.unknown:
            parts.append(f"of those that stay, {self.unknown} have no audit")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "min_sharpness": self.choice.min_sharpness,
            "kept": self.kept,
            "kept_without_audit": self.unknown,
            "left_out": {str(reason): self.left_out[reason] for reason in LeftOut if self.left_out[reason]},
        }


def in_brackets(counts: Mapping[LeftOut, int]) -> str:
    """Return the counts of reasons, to be added to a sentence; empty if nothing was left out."""
    named: Iterable[str] = (f"{reason} {counts[reason]}" for reason in LeftOut if counts.get(reason))
    text = ", ".join(named)
    return f" ({text})" if text else ""
