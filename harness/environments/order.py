"""Choose the next task of an environment: in order, at random, or those that the agent can learn most from."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pytest_ssr.errors import SettingsError

ORDERS = ("random", "in-order", "curriculum")


class TaskOrder:
    """Chooses tasks, and counts the outcomes that the curriculum depends on."""

    def __init__(self, name: str) -> None:
        """Raise SettingsError for an unknown name."""
        if name not in ORDERS:
            raise SettingsError(f"there is no order {name!r}; choose from {', '.join(ORDERS)}")
        self._name = name
        self._next = 0
        self.counts: dict[str, tuple[int, int]] = {}
        """Successes and failures of each task so far."""

    def choose(self, ids: Sequence[str], rng: Random) -> str:
        """Return the next task.

        `curriculum` samples a success rate p for each task from its posterior under a uniform prior, and returns the
        task with the largest p (1 - p): the variance of the outcome, without which a policy gradient vanishes.
        """
        if self._name == "random":
            return rng.choice(ids)
        if self._name == "in-order":
            chosen = ids[self._next % len(ids)]
            self._next += 1
            return chosen
        rates = {task: rng.betavariate(1 + good, 1 + bad) for task in ids for good, bad in [self._counts(task)]}
        return max(ids, key=lambda task: rates[task] * (1 - rates[task]))

    def restart(self) -> None:
        """Begin again with the first task; the counts are kept."""
        self._next = 0

    def record(self, task: str, success: bool | None) -> None:
        """Count an outcome; an episode without a grade does not count."""
        if success is not None:
            good, bad = self._counts(task)
            self.counts[task] = (good + success, bad + (not success))

    def _counts(self, task: str) -> tuple[int, int]:
        return self.counts.get(task, (0, 0))
