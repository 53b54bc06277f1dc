"""Test that the curriculum draws rewarding candidates, and that equal histories give equal draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from statistics import fmean

import pytest

from harness.selfplay.curriculum import Curriculum, Functions, Table, Traits
from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.protocol import Candidate, SourceTree

pytestmark = pytest.mark.long

OPERATORS = {"easy": 0.95, "hard": 0.02, "right": 0.25, "invalid": 0.25}
SIZES = (1, 2, 2, 2, 3, 4, 6, 9, 15, 25)


class Source:
    """Offers many candidates of each operator."""

    name = "source"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        for n in range(400):
            for operator in OPERATORS:
                yield Candidate("mutation", operator, {f"{n}.py": b"x\n"}, f"{n % 3}.py", 1, "f")


class Tree:
    """Has no file."""

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)


def drawn(table: Table, count: int, seed: int = 0) -> list[str]:
    source = Curriculum([Source()], table).candidates(Tree(), seed=seed)  # type: ignore[arg-type]
    return [next(source).operator for _ in range(count)]


def play(rounds: int, seed: int, reward: str = "solve-rate") -> tuple[Table, list[float]]:
    """Play rounds against a solver with a fixed solve probability for each operator; return the table and solve rates."""
    rng, table, rates = Random(seed), Table(8, reward=reward), []
    for number in range(rounds):
        solved = graded = 0
        for operator in drawn(table, 10, seed=number):
            valid = operator != "invalid"
            hits = sum(rng.random() < OPERATORS[operator] for _ in range(8)) if valid else 0
            table.update(Traits("mutation", operator, "a.py", 1), valid=valid, solved=hits, graded=8 if valid else 0)
            solved, graded = solved + hits, graded + (8 if valid else 0)
        rates.append(solved / max(1, graded))
    return table, rates


def sized(seed: int) -> list[float]:
    """Play four rounds of 20 bugs of 24 operators; all or no attempts at a bug succeed, rarely for large bugs.

    Return the solve rate of each round.
    """
    rng, table, rates = Random(seed), Table(8), []
    effect = {f"operator-{n}": rng.gauss(0, 0.5) for n in range(24)}
    for number in range(4):
        offered = {Traits("mutation", rng.choice(list(effect)), "a.py", rng.choice(SIZES)) for _ in range(300)}
        listed, draws, solved = sorted(offered, key=repr), table.draws(Random(f"{seed}:{number}")), []
        choices = [draws.best(listed) for _ in range(20)]
        for traits in choices:
            odds = 1.2 + effect[traits.operator] - 1.2 * math.log2(traits.lines / 2)
            solved.append(rng.random() < 1 / (1 + math.exp(-odds)))
            table.update(traits, valid=True, solved=8 * solved[-1], graded=8)
        rates.append(fmean(solved))
    return rates


@pytest.mark.long
def test_difficulty_moves_to_the_highest_reward() -> None:
    last = []
    for seed in range(8):
        table, rates = play(6, seed)
        last.append(rates[-1])
        counts = Counter(drawn(table, 40, seed=99))
        assert counts["right"] > 20, counts
    assert 0.15 < sum(last) / len(last) < 0.4, last


@pytest.mark.long
def test_size_predicts_if_there_are_few_bugs_of_many_operators() -> None:
    played = [sized(seed) for seed in range(10)]
    first, last = (fmean(rates[n] for rates in played) for n in (0, -1))
    assert abs(last - 0.257) < abs(first - 0.257) / 2, (first, last)


def test_results_of_another_project_count_without_its_files() -> None:
    table = Table(8)
    for _ in range(12):
        table.update(Traits("mutation", "easy", "", 2), valid=True, solved=8, graded=8)
        table.update(Traits("mutation", "right", "", 2), valid=True, solved=2, graded=8)
    assert Counter(drawn(table, 40))["right"] > 20
    assert "file a.py" in Traits("mutation", "easy", "a.py", 2).features()
    assert not any(name.startswith("file") for name in Traits("mutation", "easy", "", 2).features())


def test_difficulty_has_no_effect_if_validity_is_rewarded() -> None:
    for seed in range(4):
        counts = Counter(drawn(play(6, seed, "validity")[0], 200, seed=99))
        assert counts["invalid"] < 20, counts
        assert min(counts[valid] for valid in ("easy", "hard", "right")) > 30, counts
    assert Table(8).key() != Table(8, reward="validity").key()


class Written:
    """Has one file."""

    def read(self, path: str) -> bytes:
        if path != "a.py":
            raise FileNotFoundError(path)
        return b"""class A:
    def long(self, x):
        'What it does.'
        # Not a statement.
        if x:
            for y in x:
                print(y)
        else:
            return [z for z in x]
        def inner():
            return 1
        return 2

def short(): return 3
"""


def test_the_length_of_a_function_is_its_number_of_statements() -> None:
    functions = Functions(Written())  # type: ignore[arg-type]
    assert functions.statements("a.py", "A.long") == 8
    assert functions.statements("a.py", "short") == 1
    assert {functions.statements("a.py", name) for name in ("A", "<module>", "gone", "")} == {0}
    assert functions.statements("gone.py", "short") == 0


def test_length_predicts_without_other_features() -> None:
    """Bugs in long functions are never solved, those in short ones always, those in between sometimes."""
    rates = {4: 1.0, 16: 0.25, 64: 0.0}
    chosen: Counter[int] = Counter()
    for seed in range(4):
        table, rng = Table(8), Random(seed)
        for number, length in enumerate((4, 16, 64) * 4):
            table.update(
                Traits("mutation", f"o{number}", "", 2, length), valid=True, solved=int(8 * rates[length]), graded=8
            )
        draws = table.draws(rng)
        offered = [Traits("mutation", f"new{n}", "a.py", 2, length) for n, length in enumerate(rates)]
        chosen.update(draws.best(offered).statements for _ in range(20))
    assert chosen[16] > 60, chosen


def test_without_a_history_all_operators_are_drawn() -> None:
    assert set(drawn(Table(attempts=8), 40)) == set(OPERATORS)


def test_equal_histories_give_equal_draws() -> None:
    table, _ = play(3, 5)
    again, _ = play(3, 5)
    assert table.key() == again.key()
    assert drawn(table, 50) == drawn(again, 50)
    early, _ = play(0, 5)
    assert drawn(early, 50) != drawn(early, 50, seed=1)
    again.update(Traits("mutation", "easy", "a.py", 1), valid=True, solved=8, graded=8)
    assert table.key() != again.key()
    assert Curriculum([Source()], table).name != Curriculum([Source()], again).name


def test_all_candidates_are_drawn_once() -> None:
    source = Curriculum([Source()], Table(attempts=8)).candidates(Tree(), seed=0)  # type: ignore[arg-type]
    assert Counter(c.operator for c in source) == dict.fromkeys(OPERATORS, 400)


class Refusing:
    """Has no candidates for this project."""

    name = "refusing"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        raise ProjectError("there is no git history")
        yield


def test_an_injector_without_candidates_is_skipped() -> None:
    mixture = Curriculum([Refusing(), Source()], Table(attempts=8))
    assert len(list(mixture.candidates(Tree(), seed=0))) == 400 * len(OPERATORS)  # type: ignore[arg-type]
    with pytest.raises(ProjectError, match="there is no git history"):
        list(Curriculum([Refusing()], Table(attempts=8)).candidates(None, seed=0))  # type: ignore[arg-type]
