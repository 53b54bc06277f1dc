"""Which candidates to draw, by what earlier bugs brought: a contextual bandit over the injectors' candidates.

Two logistic regressions say of a candidate how likely it is valid and how likely one attempt solves it, from its
operator, its strategy, its file, the size of its change and that of the function around it: what one operator has shown
tells something of all others that change as much. Both are sampled a few times (MAP fits with perturbed priors on
reweighted observations: the bootstrapped posterior of Osband and Van Roy, arXiv 1507.00300) and the candidate whose
expected reward is highest on average is taken: by the paper's formula for as many attempts as are made, so that
difficulty moves to the solve rate at which that peaks (0.257 for 8 attempts); by the reward for validity, to what is
valid. One sample alone, as Thompson has it, spends the few rounds that are played on trying what is uncertain.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random

from harness.rewards import ALPHA, expected_injector_reward
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree, identities
from pytest_ssr.injectors.python_source import count_statements, parse, scopes
from pytest_ssr.injectors.turns import in_turn
from pytest_ssr.patch import FileEntry, make_patch

_AHEAD = 200
_GRID = 200
_SWEEPS, _SETTLED = 100, 0.01
_STEP = 2.0
_INVALID = -1.0
_ELSEWHERE = ""

# Attempts at one bug are alike: all of them tell little more than one.
_BUG = 1.5
_SAMPLES = 6
_FIRST_BELIEFS, _BELIEFS = 2 * _SAMPLES, 4 * _SAMPLES
# Mean and precision of a weight before anything is seen, by the first word of its name.
_VALID = {"all": (1.0, 0.5), "strategy": (0.0, 2.0), "operator": (0.0, 1.0), "file": (0.0, 2.0)}
_VALID |= {"size": (0.0, 2.0), "length": (0.0, 2.0)}
# The more a bug changes, and the more there is around it, the harder it is.
_SOLVED = {"all": (0.0, 0.5), "strategy": (0.0, 2.0), "operator": (0.0, 0.7), "file": (0.0, 2.0)}
_SOLVED |= {"size": (-0.5, 2.0), "length": (-0.3, 2.0)}


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a candidate before anything is run."""

    strategy: str
    operator: str
    path: str
    """Empty: a file of another project, whose name says nothing here."""
    lines: int
    """That it adds and removes; 0 where it is not known."""
    statements: int = 0
    """In the function that it changes first; 0 where it is not known."""

    def features(self) -> dict[str, float]:
        """Return what the regressions see, by name: 1 for what it is; doublings of two lines, of four statements."""
        found = {"all": 1.0, f"strategy {self.strategy}": 1.0, f"operator {self.operator}": 1.0}
        if self.lines:
            found["size"] = math.log2(self.lines / 2)
        if self.statements:
            found["length"] = math.log2(self.statements / 4)
        if self.path != _ELSEWHERE:
            found[f"file {self.path}"] = 1.0
        return found


@dataclass(frozen=True, slots=True)
class _Seen:
    traits: Traits
    valid: bool
    solved: int
    graded: int


@dataclass(slots=True)
class Table:
    """What became of the candidates so far."""

    attempts: int
    """That are made at each bug."""
    alpha: float = ALPHA
    reward: str = "solve-rate"
    """Of the injector, by its kind."""
    seen: list[_Seen] = field(default_factory=list)

    def tell(self, traits: Traits, *, valid: bool, solved: int = 0, graded: int = 0) -> None:
        """Take in what became of one candidate that some test noticed."""
        self.seen.append(_Seen(traits, valid, solved, graded))

    def key(self) -> str:
        """Return a text that is equal exactly for equal tables."""
        text = json.dumps([[asdict(s) for s in self.seen], self.attempts, self.alpha, self.reward])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def draws(self, chance: Random) -> Draws:
        """Return draws by what is seen up to now."""
        return Draws(self, chance)


class Draws:
    """Draws of candidates by one table: each by some of the newest beliefs, so that draws in a row differ."""

    def __init__(self, table: Table, chance: Random) -> None:
        self._table, self._chance = table, chance
        self._beliefs: deque[_Belief] = deque(maxlen=_BELIEFS)

    def best(self, offered: Sequence[Traits]) -> Traits:
        """Return the one of these whose expected reward is highest on average."""
        if self._table.reward != "solve-rate":
            # Where only validity pays, much is worth the same: one belief keeps the variety.
            believed = [_Belief(self._table, self._chance)]
        else:
            missing = max(1, _FIRST_BELIEFS - len(self._beliefs))
            self._beliefs.extend(_Belief(self._table, self._chance) for _ in range(missing))
            believed = self._chance.sample(list(self._beliefs), _SAMPLES)
        return max(offered, key=lambda traits: sum(b.reward(traits.features()) for b in believed))


class _Belief:
    """What may be true, by what a table has seen."""

    def __init__(self, table: Table, chance: Random) -> None:
        self._table = table
        self._fit, self._rate = _Regression(_VALID, chance), _Regression(_SOLVED, chance)
        for seen in table.seen:
            features = seen.traits.features()
            self._fit.see(features, int(seen.valid), int(not seen.valid))
            if seen.graded:
                share = seen.solved / seen.graded
                self._rate.see(features, _BUG * share, _BUG * (1 - share))
        self._fit.settle()
        self._rate.settle()

    def reward(self, features: Mapping[str, float]) -> float:
        table, valid = self._table, self._fit.chance_of(features)
        paid = _expected(round(self._rate.chance_of(features) * _GRID), table.attempts, table.alpha, table.reward)
        return valid * paid + (1 - valid) * _INVALID


class _Regression:
    """A sample of a logistic regression's posterior."""

    def __init__(self, priors: Mapping[str, tuple[float, float]], chance: Random) -> None:
        self._priors, self._chance = priors, chance
        self._prior: dict[str, tuple[float, float]] = {}
        self._weights: dict[str, float] = {}
        self._rows: list[tuple[float, float]] = []
        """Successes and all, weighted."""
        self._sums: list[float] = []
        self._members: dict[str, list[tuple[int, float]]] = {}

    def see(self, features: Mapping[str, float], yes: float, no: float) -> None:
        """Take in an observation, with a weight of its own."""
        weight = self._chance.expovariate(1)
        for name, value in features.items():
            self._members.setdefault(name, []).append((len(self._rows), value))
        self._rows.append((weight * yes, weight * (yes + no)))
        self._sums.append(sum(value * self._weight(name) for name, value in features.items()))

    def _weight(self, name: str) -> float:
        """Return a weight; one that is met for the first time is drawn from its prior."""
        if name not in self._weights:
            mean, precision = self._priors[name.split(" ", 1)[0]]
            drawn = self._chance.gauss(mean, precision**-0.5)
            self._prior[name], self._weights[name] = (drawn, precision), drawn
        return self._weights[name]

    def settle(self) -> None:
        """Fit, one weight after the other, by Newton's steps, until hardly one moves."""
        for _ in range(_SWEEPS):
            largest = 0.0
            for name, members in self._members.items():
                mean, precision = self._prior[name]
                slope, bend = precision * (mean - self._weights[name]), precision
                for row, value in members:
                    yes, total = self._rows[row]
                    guess = _logistic(self._sums[row])
                    slope += value * (yes - total * guess)
                    bend += value * value * total * guess * (1 - guess)
                step = max(-_STEP, min(_STEP, slope / bend))
                largest = max(largest, abs(step))
                self._weights[name] += step
                for row, value in members:
                    self._sums[row] += step * value
            if largest < _SETTLED:
                return

    def chance_of(self, features: Mapping[str, float]) -> float:
        return _logistic(sum(value * self._weight(name) for name, value in features.items()))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, x))))


@functools.cache
def _expected(place: int, attempts: int, alpha: float, reward: str) -> float:
    # Of one attempt each rate pays the same but for rounding.
    return round(expected_injector_reward(place / _GRID, attempts, alpha=alpha, kind=reward), 9)


class Mixture:
    """An injector that draws from others, by a table; the same candidates for the same tree, seed and table."""

    def __init__(self, injectors: Sequence[Injector], table: Table) -> None:
        self._injectors, self._table = tuple(injectors), table
        self.name = f"mixture of {','.join(i.name for i in injectors)} {table.key()}"

    def depends_on(self, tree: SourceTree) -> str:
        """Return that of the others."""
        return " ".join(identities(self._injectors, tree))

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield candidates, the best of each draw first; those looked at ahead are kept by what is known of them.

        Raises ProjectError where not one of the injectors can make any.
        """
        chance = Random(f"mixture:{seed}:{self._table.key()}")
        draws, functions = self._table.draws(chance), Functions(tree)
        source = in_turn([i.candidates(tree, seed=seed) for i in self._injectors])
        waiting: dict[Traits, deque[Candidate]] = {}
        held = 0
        while True:
            while held < _AHEAD:
                candidate = next(source, None)
                if candidate is None:
                    break
                waiting.setdefault(_traits(tree, functions, candidate), deque()).append(candidate)
                held += 1
            if not held:
                return
            best = draws.best(list(waiting))
            yield waiting[best].popleft()
            held -= 1
            if not waiting[best]:
                del waiting[best]


class Functions:
    """How long the functions of a project are."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._known: dict[str, dict[str, int]] = {}

    def statements(self, path: str, scope: str) -> int:
        """Return how many statements a function holds, by its qualified name; 0 where there is none."""
        if path not in self._known:
            entry = _entry(self._tree, path)
            source = parse(path, entry.data) if entry is not None else None
            found = scopes(source) if source is not None else []
            self._known[path] = {s.qualname: count_statements(s.node) for s in found if s.kind == "function"}
        return self._known[path].get(scope, 0)


def _traits(tree: SourceTree, functions: Functions, candidate: Candidate) -> Traits:
    length = functions.statements(candidate.path, candidate.scope)
    return Traits(candidate.strategy, candidate.operator, candidate.path, _lines(tree, candidate), length)


def _lines(tree: SourceTree, candidate: Candidate) -> int:
    pairs = {p: (_entry(tree, p), None if d is None else FileEntry(d)) for p, d in candidate.changes.items()}
    return make_patch(pairs).stats.lines


def _entry(tree: SourceTree, path: str) -> FileEntry | None:
    try:
        return FileEntry(tree.read(path))
    except FileNotFoundError:
        return None
