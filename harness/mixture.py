"""Which operators to draw from, by what earlier bugs of theirs brought: a bandit over the injectors' candidates.

For each operator and each file the chances of being valid and of being solved have Beta posteriors. A draw samples
from them (Thompson, 1933) and takes the arm whose expected reward is highest: by the paper's formula for as many
attempts as are made, so that difficulty moves to the solve rate at which that peaks (0.257 for 8 attempts); by the
reward for validity, to what is valid.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.rewards import ALPHA, expected_injector_reward
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree, identities
from pytest_ssr.injectors.turns import in_turn

_AHEAD = 400
_GRID = 200
_NO_USE = -1.0


@dataclass(slots=True)
class Arm:
    """What is known of one operator, or of one file."""

    valid: int = 0
    invalid: int = 0
    solved: int = 0
    """Attempts that resolved its bugs."""
    unsolved: int = 0

    def value(self, chance: Random, table: Table) -> float:
        """Return a draw of its expected reward."""
        fit = chance.betavariate(1 + self.valid, 1 + self.invalid)
        # Attempts at one bug are alike: eight of them tell about as much as two bugs would.
        weight = 2 / max(1, table.attempts)
        rate = chance.betavariate(0.5 + weight * self.solved, 0.5 + weight * self.unsolved)
        return fit * _expected(round(rate * _GRID), table.attempts, table.alpha, table.reward) + (1 - fit) * _NO_USE


@functools.cache
def _expected(place: int, attempts: int, alpha: float, reward: str) -> float:
    return expected_injector_reward(place / _GRID, attempts, alpha=alpha, kind=reward)


@dataclass(slots=True)
class Table:
    """What is known of all arms."""

    attempts: int
    """That are made at each bug."""
    alpha: float = ALPHA
    reward: str = "solve-rate"
    """Of the injector, by its kind."""
    operators: dict[str, Arm] = field(default_factory=dict)
    files: dict[str, Arm] = field(default_factory=dict)

    def tell(self, operator: str, path: str, *, valid: bool, solved: int = 0, graded: int = 0) -> None:
        """Take in what became of one candidate that some test noticed."""
        for arm in (self.operators.setdefault(operator, Arm()), self.files.setdefault(path, Arm())):
            arm.valid += valid
            arm.invalid += not valid
            arm.solved += solved
            arm.unsolved += graded - solved

    def key(self) -> str:
        """Return a text that is equal exactly for equal tables."""
        plain = {
            kind: {name: [a.valid, a.invalid, a.solved, a.unsolved] for name, a in sorted(arms.items())}
            for kind, arms in (("operators", self.operators), ("files", self.files))
        }
        text = json.dumps([plain, self.attempts, self.alpha, self.reward])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class Mixture:
    """An injector that draws from others, by a table; the same candidates for the same tree, seed and table."""

    def __init__(self, injectors: Sequence[Injector], table: Table) -> None:
        self._injectors, self._table = tuple(injectors), table
        self.name = f"mixture of {','.join(i.name for i in injectors)} {table.key()}"

    def depends_on(self, tree: SourceTree) -> str:
        """Return that of the others."""
        return " ".join(identities(self._injectors, tree))

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield candidates, the arm of the highest draw first; those looked at ahead are kept by operator.

        Raises ProjectError where not one of the injectors can make any.
        """
        chance = Random(f"mixture:{seed}:{self._table.key()}")
        source = in_turn([i.candidates(tree, seed=seed) for i in self._injectors])
        waiting: dict[str, deque[Candidate]] = {}
        held = 0
        while True:
            while held < _AHEAD:
                candidate = next(source, None)
                if candidate is None:
                    break
                waiting.setdefault(candidate.operator, deque()).append(candidate)
                held += 1
            if not held:
                return
            yield self._drawn(waiting, chance)
            held -= 1

    def _drawn(self, waiting: Mapping[str, deque[Candidate]], chance: Random) -> Candidate:
        table = self._table
        best, value = "", float("-inf")
        for operator, queue in sorted(waiting.items()):
            if not queue:
                continue
            by_operator = table.operators.get(operator, Arm()).value(chance, table)
            by_file = table.files.get(queue[0].path, Arm()).value(chance, table)
            if by_operator + by_file / 2 > value:
                best, value = operator, by_operator + by_file / 2
        return waiting[best].popleft()
