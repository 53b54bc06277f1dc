"""Count what becomes of the rollouts of each update, in all processes of a training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from harness.environments.adapters.trl import Rollout, of_all_processes
from harness.records.trajectory import ExitReason
from harness.training.language.run_folder import RunFolder, read_lines


@dataclass(frozen=True, slots=True)
class UpdateCounts:
    """Numbers of rollouts."""

    played: int = 0
    failed: int = 0
    """Without a reward, because a failure of the sandbox left no grade."""
    untried: int = 0
    """Without a reward, because no solver tried the bug."""
    context_full: int = 0
    """Ended because the context had no room for another reply."""
    completion_full: int = 0
    """Ended because all tokens of a completion were used."""
    cut: int = 0
    """With a reply that a limit of tokens has cut."""
    unequal_groups: int = 0
    """Groups of rollouts whose rewards differ; without one, the rewards of an update change no weight."""

    @classmethod
    def of(cls, rollouts: Iterable[Rollout], rewards: Sequence[float | None], group: int) -> UpdateCounts:
        """Count the rollouts of this process. group: rollouts of each task, one task after the other."""
        groups = [rewards[first : first + group] for first in range(0, len(rewards), group)]
        pairs = list(zip(rollouts, rewards, strict=True))
        without = [rollout for rollout, reward in pairs if reward is None]
        failed = sum(rollout.reward is None for rollout in without)
        ends = Counter(rollout.full for rollout, _ in pairs)
        return cls(
            played=len(pairs),
            failed=failed,
            untried=len(without) - failed,
            context_full=ends[ExitReason.CONTEXT],
            completion_full=ends[ExitReason.TOKEN_LIMIT],
            cut=sum(rollout.cut_replies > 0 for rollout, _ in pairs),
            unequal_groups=sum(len({reward for reward in rewards if reward is not None}) > 1 for rewards in groups),
        )

    @property
    def without_reward(self) -> int:
        """The number of rollouts that have no reward, and of which nothing is learned."""
        return self.failed + self.untried

    def of_all_processes(self, trainer: Any) -> UpdateCounts:
        """Return the sum over all processes, which have to call this together."""
        return _sum(UpdateCounts(*numbers) for numbers in of_all_processes(astuple(self), trainer))

    def to_json(self) -> dict[str, int]:
        """Return plain data for JSON."""
        return {**asdict(self), "without_reward": self.without_reward}


def total(folder: RunFolder) -> UpdateCounts:
    """Return the sum over all updates of a run."""
    lines = read_lines(folder.counts) if folder.counts.exists() else []
    # An earlier version counted less.
    return _sum(UpdateCounts(**{item.name: line.get(item.name, 0) for item in fields(UpdateCounts)}) for line in lines)


def equal_updates(folder: RunFolder) -> int:
    """Return the number of updates in which the rewards of each group are equal; an earlier version has not counted."""
    lines = read_lines(folder.counts) if folder.counts.exists() else []
    return sum(line.get("unequal_groups") == 0 for line in lines)


def _sum(counts: Iterable[UpdateCounts]) -> UpdateCounts:
    columns = zip(*map(astuple, counts), strict=True)
    return UpdateCounts(*map(sum, columns))
