"""What a leaderboard is made with."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.rewards import ALPHA, injector_reward
from pytest_ssr.errors import SettingsError
from pytest_ssr.reasons import Rule


@dataclass(frozen=True, slots=True)
class RankSettings:
    """Options of a leaderboard."""

    seed: int = 0
    ks: tuple[int, ...] = ()
    """Of pass@k; none: the powers of two up to the most attempts at a task."""
    reference: tuple[str, ...] = ()
    """Solvers of the reference pool; none: those that met every injector, else all."""
    frozen: Mapping[str, float] = field(default_factory=dict)
    """Abilities of a frozen pool, in logits."""
    released: Mapping[str, str] = field(default_factory=dict)
    """By solver, the day of its model: tasks made before may have been learned."""
    created: Mapping[str, str] = field(default_factory=dict)
    """By task, when it was made, where the results do not say."""
    alpha: float = ALPHA
    reward: str = "solve-rate"
    rule: Rule = Rule.STRICT
    """Which verdict of a grade decides."""

    def __post_init__(self) -> None:
        """Refuse values that make no sense; raises SettingsError naming the option."""
        injector_reward(False, alpha=self.alpha, kind=self.reward)
        if any(k < 1 for k in self.ks):
            raise SettingsError(f"--k {min(self.ks)} must be at least 1")
        if self.seed < 0:
            raise SettingsError(f"--seed must be at least 0, not {self.seed}")
        for solver, day in self.released.items():
            if day_of(day) != day:
                raise SettingsError(f"--released {solver}={day} has no day; write it as 2026-01-31")

    def require_known(self, solvers: Sequence[str]) -> None:
        """Raise SettingsError for a solver that is named and not there."""
        for option, named in (("--reference", self.reference), ("--released", tuple(self.released))):
            for name in named:
                if not matching(name, solvers):
                    told = ", ".join(sorted(solvers)[:20])
                    raise SettingsError(f"{option} names {name}, which is no solver here; there are: {told}")


def matching(name: str, solvers: Sequence[str]) -> list[str]:
    """Return the solvers of a name: itself, and itself in single runs."""
    return [s for s in solvers if s == name or s.startswith(f"{name} (")]


def day_of(text: str) -> str:
    """Return the day at the beginning of a time in ISO 8601; empty where there is none."""
    try:
        return datetime.date.fromisoformat(text[:10]).isoformat() if len(text) >= 10 else ""
    except ValueError:
        return ""
