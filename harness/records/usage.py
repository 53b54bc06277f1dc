"""Count the tokens and cost of rollouts from their trajectories, including those of interrupted tries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.records.trajectory import Trajectory, read_trajectory
from pytest_ssr.errors import StoreError

NAME = "trajectory.jsonl"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Tokens and cost."""

    tokens: int = 0
    """Prompt and completion tokens together."""
    cost_usd: float = 0.0
    """Cost in USD of the calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is unknown."""
    estimated: int = 0
    """Calls whose token counts are estimated, because the server does not report them."""

    def __add__(self, other: RunUsage) -> RunUsage:
        return RunUsage(
            self.tokens + other.tokens,
            round(self.cost_usd + other.cost_usd, 6),
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
        )

    @classmethod
    def of(cls, rollout: Trajectory) -> RunUsage:
        """Return the usage of one rollout; replies from a cache were paid for earlier and do not count."""
        paid = [c for c in rollout.calls if not c.cached]
        return cls(
            sum(c.usage.prompt_tokens + c.usage.completion_tokens for c in paid),
            round(sum(c.cost_usd or 0.0 for c in paid), 6),
            sum(c.cost_usd is None for c in paid if c.trainable),
            sum(c.usage.estimated for c in paid),
        )

    @classmethod
    def sum(cls, usages: Iterable[RunUsage]) -> RunUsage:
        """Return the total of several usages."""
        total = cls()
        for usage in usages:
            total += usage
        return total


def archive_interrupted(folder: Path) -> RunUsage:
    """Rename the trajectory of an interrupted try, and return the usage of all interrupted tries in the folder."""
    last = folder / NAME
    earlier = sorted(folder.glob("earlier-*.jsonl"))
    if last.exists():
        archived = folder / f"earlier-{len(earlier) + 1:03d}.jsonl"
        last.rename(archived)
        earlier.append(archived)
    return RunUsage.sum(_usage_in(path) for path in earlier)


def _usage_in(path: Path) -> RunUsage:
    try:
        return RunUsage.of(read_trajectory(path))
    except StoreError:
        # The run was killed before its first line was complete.
        return RunUsage()
