"""Repairs are ranked by what a language model says, as far as a budget goes. The model here is a stand-in."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from harness.local_models.scoring import Scored, Scores, Variant
from harness.models import scorers
from harness.solvers.search import language
from harness.solvers.search.language import (
    AFTER,
    COLUMNS,
    LanguageRanking,
    Place,
    columns_of,
    first_within,
    ranked_again,
)
from harness.solvers.search.patterns import Repair, repairs_of
from pytest_ssr.errors import SettingsError
from pytest_ssr.source.syntax_tree import Edit, parse, scopes

SOURCE = b"""\
class A:
    def smallest(self, items):
        best = items[0]
        for item in items:
            if item > best:
                best = item
        return best


def other(x):
    return x + 1
"""


@dataclass(frozen=True)
class Likes:
    """A stand-in for a model: each character is a token, and those of a text that it likes are likely."""

    liked: str
    key: str = "likes"

    def score(self, text: str, variants: Sequence[Variant], *, after: int) -> Scored:
        scores = tuple(
            Scores(
                tuple(0.0 if self.liked in v.text else -1.0 for _ in range(v.start, v.end)),
                (-0.5,) * min(after, len(v.text) - v.end),
            )
            for v in variants
        )
        return Scored(scores, len(text))


def places() -> list[Place]:
    source = parse("a.py", SOURCE)
    assert source is not None
    return [Place(source, scope) for scope in scopes(source) if scope.kind == "function"]


def ranking(scorer, *, tokens: int = 10**6, policy: float = 1.0, read: float = 0.0) -> LanguageRanking:
    weights = tuple(1.0 if name == "mean_added" else 0.0 for name in COLUMNS)
    return LanguageRanking("smollm2", scorer.key, policy, weights, read, tokens, scorer)


def listed(tokens_per_function: int = 5) -> list[tuple[float, Place, Repair]]:
    result = []
    for place in places():
        repairs = repairs_of(place.source, place.scope, scopes(place.source))[:tokens_per_function]
        result += [(-float(i), place, repair) for i, repair in enumerate(repairs)]
    return sorted(result, key=lambda item: -item[0])


def test_columns_describe_the_tokens_that_a_repair_changes():
    place = places()[0]
    at = SOURCE.index(b"> best")
    repair = Repair("a.py", "p", 1.0, (Edit(at, at + 1, b"<="),), 5, 5, (2, 7))
    (row,), tokens = columns_of(Likes("<="), place, [repair])
    assert row is not None
    values = dict(zip(COLUMNS, row, strict=True))
    # One character was unlikely, two are likely, and the next ones are the same.
    assert values == {
        "ratio": 1.0,
        "added": 0.0,
        "removed": -1.0,
        "following": 0.0,
        "mean_added": 0.0,
        "mean_removed": -1.0,
        "length_added": round(math.log(3), 3),
        "length_removed": round(math.log(2), 3),
    }
    assert tokens == len(SOURCE[SOURCE.index(b"    def") : place.scope.end])


def test_what_cannot_be_read_has_no_columns(monkeypatch):
    place = places()[0]
    outside = Repair("a.py", "p", 1.0, (Edit(0, 5, b"x"),), 1, 1, (2, 7))
    inside = Repair("a.py", "p", 1.0, (Edit(place.scope.start + 10, place.scope.start + 11, b"\xff"),), 2, 2, (2, 7))
    rows, _ = columns_of(Likes("x"), place, [outside, inside])
    assert rows == [None, None]
    monkeypatch.setattr(language, "_LONGEST_BYTES", 10)
    assert columns_of(Likes("x"), place, [inside]) == ([None], 0)


def test_the_model_ranks_within_a_function_and_probabilities_add_up():
    items = listed()
    plain, nothing = ranked_again(ranking(Likes("never")), items)
    for place in places():
        own = [math.exp(v) for v, (_, p, _) in zip(plain, items, strict=True) if p.scope.start == place.scope.start]
        assert sum(own) == pytest.approx(1)
    assert nothing.read == nothing.candidates == len(items)
    last = items[-1][2]
    text = last.edits[0].text.decode()
    liked, _ = ranked_again(replace(ranking(Likes(text)), policy=0.0), items)
    same = [
        v
        for v, (_, p, _) in zip(liked, items, strict=True)
        if p.source.path and p.scope.start == items[-1][1].scope.start
    ]
    assert liked[-1] == max(same)


def test_a_budget_is_a_number_of_candidates_that_needs_no_clock():
    items = listed()
    pairs = [(place, repair) for _, place, repair in items]
    counts = [first_within(pairs, tokens) for tokens in (0, 60, 120, 10**6)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == len(items)
    assert 0 < counts[2] < len(items)
    one = first_within(pairs, AFTER + len(SOURCE))
    _, reading = ranked_again(ranking(Likes("x"), tokens=AFTER + len(SOURCE)), items)
    assert reading.read == one


def test_without_a_budget_the_policy_decides():
    items = listed()
    values, reading = ranked_again(ranking(Likes("x"), tokens=1), items)
    assert reading.read == 0
    for place in places():
        own = [v for v, (_, p, _) in zip(values, items, strict=True) if p.scope.start == place.scope.start]
        assert own == sorted(own, reverse=True)


def test_the_file_of_a_policy_follows_no_path_or_address(monkeypatch):
    opened = []
    monkeypatch.setattr(language, "open_scorer", lambda name: opened.append(name) or Likes("x"))
    values = ranking(Likes("x")).to_json()
    assert LanguageRanking.from_json(values, "").name == "smollm2"
    for name in ("http://127.0.0.1:9/v1", "/somewhere"):
        stored = replace(ranking(Likes("x")), name=name).to_json()
        assert name not in str(stored)
        with pytest.raises(SettingsError):
            LanguageRanking.from_json({**stored, "model": name}, "")
        assert LanguageRanking.from_json(stored, name).name == name
    assert opened == ["smollm2", "http://127.0.0.1:9/v1", "/somewhere"]
    with pytest.raises(SettingsError):
        LanguageRanking.from_json({**values, "key": "another"}, "")


@pytest.mark.parametrize(
    "damage",
    [
        {"weights": [1.0]},
        {"weights": [math.nan] * len(COLUMNS)},
        {"policy": math.inf},
        {"tokens": 0},
        {"columns": ["other"]},
        {"read": "x"},
    ],
)
def test_damaged_weights_are_refused(monkeypatch, damage):
    monkeypatch.setattr(language, "open_scorer", lambda name: Likes("x"))
    with pytest.raises((ValueError, TypeError, KeyError)):
        LanguageRanking.from_json({**ranking(Likes("x")).to_json(), **damage}, "")


def test_a_ranking_goes_to_other_processes_without_the_model(tmp_path):
    scorer = scorers.LocalScorer(scorers.Weights(tmp_path, "key"))
    assert len(pickle.dumps(ranking(scorer))) < 2000
