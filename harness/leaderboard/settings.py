"""Define the settings of a leaderboard."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.records.rewards import ALPHA, injector_reward
from harness.records.task_choice import TaskChoice
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import Rule


@dataclass(frozen=True, slots=True)
class RankSettings:
    """Options of a leaderboard."""

    seed: int = 0
    ks: tuple[int, ...] = ()
    """Values of k for pass@k; empty: powers of two up to the most attempts at a task."""
    reference: tuple[str, ...] = ()
    """Solvers of the reference pool; empty: those that met every injector, else all."""
    frozen: Mapping[str, float] = field(default_factory=dict)
    """Abilities of a frozen pool, in logits."""
    released: Mapping[str, str] = field(default_factory=dict)
    """By solver, the release day of its model, which may have learned older tasks."""
    created: Mapping[str, str] = field(default_factory=dict)
    """By task, the time at which it was made; takes precedence over the results."""
    alpha: float = ALPHA
    reward: str = "solve-rate"
    rule: Rule = Rule.STRICT
    """The verdict of a grade that counts."""
    choice: TaskChoice | None = None
    """Which tasks pass an audit; their rates stand beside those of all tasks."""

    def __post_init__(self) -> None:
        """Raise SettingsError, naming the option, for invalid values."""
        injector_reward(False, alpha=self.alpha, kind=self.reward)
        if any(k < 1 for k in self.ks):
            raise SettingsError(f"--k {min(self.ks)} must be at least 1", option="k")
        if self.seed < 0:
            raise SettingsError(f"--seed must be at least 0, not {self.seed}", option="seed")
        for solver, day in self.released.items():
            if day_of(day) != day:
                raise SettingsError(
                    f"--released {solver}={day} is not a day; write it as 2026-01-31", option="released"
                )

    def require_known(self, solvers: Sequence[str]) -> None:
        """Raise SettingsError if an option names a solver without results. solvers: all solvers with results."""
        for option, names in (("--reference", self.reference), ("--released", tuple(self.released))):
            for name in names:
                if not matching(name, solvers):
                    known = ", ".join(sorted(solvers)[:20])
                    raise SettingsError(
                        f"{option} names {name}, which is not a solver of these runs; they have: {known}"
                    )


def matching(name: str, solvers: Sequence[str]) -> list[str]:
    """Return the solvers that a name refers to: itself, and its variants for single runs."""
    return [s for s in solvers if s == name or s.startswith(f"{name} (")]


def day_of(text: str) -> str:
    """Return the day of a time in ISO 8601; empty if it does not start with one."""
    try:
        return datetime.date.fromisoformat(text[:10]).isoformat() if len(text) >= 10 else ""
    except ValueError:
        return ""
