"""What rollouts have used of models: counted from their trajectories, those of tries that were cut off included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.trajectory import Trajectory, read_trajectory
from pytest_ssr.errors import StoreError

NAME = "trajectory.jsonl"


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money."""

    tokens: int = 0
    """Of prompts and replies."""
    cost_usd: float = 0.0
    """Of the calls whose price is known."""
    unpriced: int = 0
    """Calls to servers whose price is not known."""
    estimated: int = 0
    """Calls to servers that do not count their tokens: ours are an estimate."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.tokens + other.tokens,
            round(self.cost_usd + other.cost_usd, 6),
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
        )

    @classmethod
    def of(cls, rollout: Trajectory) -> Spent:
        """Count one rollout; what came from a cache was paid for before."""
        paid = [c for c in rollout.calls if not c.cached]
        return cls(
            sum(c.usage.prompt_tokens + c.usage.completion_tokens for c in paid),
            round(sum(c.cost_usd or 0.0 for c in paid), 6),
            sum(c.cost_usd is None for c in paid if c.trainable),
            sum(c.usage.estimated for c in paid),
        )

    @classmethod
    def sum(cls, several: Iterable[Spent]) -> Spent:
        """Return all of it together."""
        total = cls()
        for one in several:
            total += one
        return total


def begin_anew(folder: Path) -> Spent:
    """Put the trajectory of a try that was cut off aside, under another name; return what all such tries used."""
    last = folder / NAME
    earlier = sorted(folder.glob("earlier-*.jsonl"))
    if last.exists():
        aside = folder / f"earlier-{len(earlier) + 1:03d}.jsonl"
        last.rename(aside)
        earlier.append(aside)
    return Spent.sum(_in(path) for path in earlier)


def _in(path: Path) -> Spent:
    try:
        return Spent.of(read_trajectory(path))
    except StoreError:
        # It was killed before its first line was whole.
        return Spent()
