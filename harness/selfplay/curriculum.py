"""Choose candidates by the rewards of earlier bugs: a contextual bandit over the injectors' candidates.

Two logistic regressions predict the probability that a candidate is valid and that one attempt solves it, from its
operator, its strategy, its file, the size of its change and that of the function around it: the results of one operator
are evidence about others with changes of the same size. Both are sampled a few times (MAP fits with perturbed priors on
reweighted observations: the bootstrapped posterior of Osband and Van Roy, arXiv 1507.00300), and the candidate with the
highest mean expected reward is chosen. By the paper's formula for the given number of attempts, difficulty moves to the
solve rate with the highest reward (0.257 for 8 attempts); by the reward for validity, the choice moves to valid bugs. A
single sample, as in Thompson sampling, would spend the few rounds of a run on exploring uncertain candidates.
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

from harness.records.rewards import ALPHA, expected_injector_reward
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree, ahead_of, identities
from pytest_ssr.injectors.sampler import interleave
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.source.syntax_tree import count_statements, parse, scopes

_AHEAD = 200
_GRID = 200
_SWEEPS, _SETTLED = 100, 0.01
_STEP = 2.0
_INVALID = -1.0
_ELSEWHERE = ""

# Attempts at one bug are correlated: together they are little more evidence than one.
_BUG = 1.5
_SAMPLES = 6
_FIRST_BELIEFS, _BELIEFS = 2 * _SAMPLES, 4 * _SAMPLES
# Prior mean and precision of a weight, by the first word of its name.
_VALID = {"all": (1.0, 0.5), "strategy": (0.0, 2.0), "operator": (0.0, 1.0), "file": (0.0, 2.0)}
_VALID |= {"size": (0.0, 2.0), "length": (0.0, 2.0)}
# A larger change, and a larger function around it, make a bug harder.
_SOLVED = {"all": (0.0, 0.5), "strategy": (0.0, 2.0), "operator": (0.0, 0.7), "file": (0.0, 2.0)}
_SOLVED |= {"size": (-0.5, 2.0), "length": (-0.3, 2.0)}


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a candidate that are known before any run."""

    strategy: str
    operator: str
    path: str
    """Empty for a file of another project, whose name carries no information here."""
    lines: int
    """Number of added and removed lines; 0 if not known."""
    statements: int = 0
    """Number of statements in the first changed function; 0 if not known."""

    def features(self) -> dict[str, float]:
        """Return the features by name: 1 for each category; sizes as log2 of lines / 2 and of statements / 4."""
        features = {"all": 1.0, f"strategy {self.strategy}": 1.0, f"operator {self.operator}": 1.0}
        if self.lines:
            features["size"] = math.log2(self.lines / 2)
        if self.statements:
            features["length"] = math.log2(self.statements / 4)
        if self.path != _ELSEWHERE:
            features[f"file {self.path}"] = 1.0
        return features


@dataclass(frozen=True, slots=True)
class _Observation:
    traits: Traits
    valid: bool
    solved: int
    graded: int


@dataclass(slots=True)
class Table:
    """The results of the candidates so far."""

    attempts: int
    """Number of attempts at each bug."""
    alpha: float = ALPHA
    reward: str = "solve-rate"
    """The kind of the injector's reward."""
    seen: list[_Observation] = field(default_factory=list)

    def update(self, traits: Traits, *, valid: bool, solved: int = 0, graded: int = 0) -> None:
        """Record the result of one candidate that made a test fail."""
        self.seen.append(_Observation(traits, valid, solved, graded))

    def key(self) -> str:
        """Return a string that is equal exactly for equal tables."""
        text = json.dumps([[asdict(s) for s in self.seen], self.attempts, self.alpha, self.reward])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def draws(self, rng: Random) -> Draws:
        """Return draws based on the results so far."""
        return Draws(self, rng)


class Draws:
    """Draws candidates by one table, each with a sample of the newest beliefs, so that successive draws differ."""

    def __init__(self, table: Table, rng: Random) -> None:
        self._table, self._rng = table, rng
        self._beliefs: deque[_Belief] = deque(maxlen=_BELIEFS)

    def best(self, offered: Sequence[Traits]) -> Traits:
        """Return the candidate with the highest mean expected reward."""
        if self._table.reward != "solve-rate":
            # If only validity is rewarded, many candidates tie: a single belief keeps the variety.
            beliefs = [_Belief(self._table, self._rng)]
        else:
            missing = max(1, _FIRST_BELIEFS - len(self._beliefs))
            self._beliefs.extend(_Belief(self._table, self._rng) for _ in range(missing))
            beliefs = self._rng.sample(list(self._beliefs), _SAMPLES)
        return max(offered, key=lambda traits: sum(b.reward(traits.features()) for b in beliefs))


class _Belief:
    """A sample of the two models, given the results in a table."""

    def __init__(self, table: Table, rng: Random) -> None:
        self._table = table
        self._validity, self._solve_rate = _Regression(_VALID, rng), _Regression(_SOLVED, rng)
        for observation in table.seen:
            features = observation.traits.features()
            self._validity.observe(features, int(observation.valid), int(not observation.valid))
            if observation.graded:
                share = observation.solved / observation.graded
                self._solve_rate.observe(features, _BUG * share, _BUG * (1 - share))
        self._validity.fit()
        self._solve_rate.fit()

    def reward(self, features: Mapping[str, float]) -> float:
        table, valid = self._table, self._validity.probability(features)
        solve_rate = round(self._solve_rate.probability(features) * _GRID)
        reward = _expected_reward(solve_rate, table.attempts, table.alpha, table.reward)
        return valid * reward + (1 - valid) * _INVALID


class _Regression:
    """A sample of a logistic regression's posterior."""

    def __init__(self, priors: Mapping[str, tuple[float, float]], rng: Random) -> None:
        self._priors, self._rng = priors, rng
        self._prior: dict[str, tuple[float, float]] = {}
        self._weights: dict[str, float] = {}
        self._rows: list[tuple[float, float]] = []
        """Weighted successes and totals."""
        self._sums: list[float] = []
        self._members: dict[str, list[tuple[int, float]]] = {}

    def observe(self, features: Mapping[str, float], yes: float, no: float) -> None:
        """Add an observation with a random weight."""
        weight = self._rng.expovariate(1)
        for name, value in features.items():
            self._members.setdefault(name, []).append((len(self._rows), value))
        self._rows.append((weight * yes, weight * (yes + no)))
        self._sums.append(sum(value * self._weight(name) for name, value in features.items()))

    def _weight(self, name: str) -> float:
        """Return a weight; a new one is drawn from its prior."""
        if name not in self._weights:
            mean, precision = self._priors[name.split(" ", 1)[0]]
            sample = self._rng.gauss(mean, precision**-0.5)
            self._prior[name], self._weights[name] = (sample, precision), sample
        return self._weights[name]

    def fit(self) -> None:
        """Fit the weights one at a time by Newton steps, until the largest step is below `_SETTLED`."""
        for _ in range(_SWEEPS):
            largest = 0.0
            for name, members in self._members.items():
                mean, precision = self._prior[name]
                slope, curvature = precision * (mean - self._weights[name]), precision
                for row, value in members:
                    yes, total = self._rows[row]
                    guess = _logistic(self._sums[row])
                    slope += value * (yes - total * guess)
                    curvature += value * value * total * guess * (1 - guess)
                step = max(-_STEP, min(_STEP, slope / curvature))
                largest = max(largest, abs(step))
                self._weights[name] += step
                for row, value in members:
                    self._sums[row] += step * value
            if largest < _SETTLED:
                return

    def probability(self, features: Mapping[str, float]) -> float:
        return _logistic(sum(value * self._weight(name) for name, value in features.items()))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, x))))


@functools.cache
def _expected_reward(step: int, attempts: int, alpha: float, reward: str) -> float:
    # With one attempt every solve rate has the same reward, except for rounding errors.
    return round(expected_injector_reward(step / _GRID, attempts, alpha=alpha, kind=reward), 9)


class Curriculum:
    """An injector that draws from others by a table; equal trees, seeds and tables give equal candidates."""

    def __init__(self, injectors: Sequence[Injector], table: Table) -> None:
        self._injectors, self._table = tuple(injectors), table
        self.ahead = ahead_of(injectors, _AHEAD)
        self.name = f"mixture of {','.join(i.name for i in injectors)} {table.key()}"

    def depends_on(self, tree: SourceTree) -> str:
        """Return the dependencies of the other injectors."""
        return " ".join(identities(self._injectors, tree))

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield the best candidate of each draw; up to `ahead` candidates are held in advance, grouped by traits.

        Raises ProjectError if none of the injectors has candidates.
        """
        rng = Random(f"mixture:{seed}:{self._table.key()}")
        draws, functions = self._table.draws(rng), Functions(tree)
        source = interleave([i.candidates(tree, seed=seed) for i in self._injectors])
        waiting: dict[Traits, deque[Candidate]] = {}
        count = 0
        while True:
            while count < self.ahead:
                candidate = next(source, None)
                if candidate is None:
                    break
                waiting.setdefault(_traits(tree, functions, candidate), deque()).append(candidate)
                count += 1
            if not count:
                return
            best = draws.best(list(waiting))
            yield waiting[best].popleft()
            count -= 1
            if not waiting[best]:
                del waiting[best]


class Functions:
    """The sizes of a project's functions, in statements."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._sizes: dict[str, dict[str, int]] = {}

    def statements(self, path: str, scope: str) -> int:
        """Return the number of statements of a function by its qualified name; 0 if there is no such function."""
        if path not in self._sizes:
            entry = _entry(self._tree, path)
            source = parse(path, entry.data) if entry is not None else None
            definitions = scopes(source) if source is not None else []
            self._sizes[path] = {s.qualname: count_statements(s.node) for s in definitions if s.kind == "function"}
        return self._sizes[path].get(scope, 0)


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
