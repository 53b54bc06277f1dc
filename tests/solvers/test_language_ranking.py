"""Repairs are ranked by what a language model says, as far as a budget goes. The model here is a stand-in."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from harness.local_models.scoring import Scores, Variant
from harness.models import scorers
from harness.solvers.search import language
from harness.solvers.search.language import (
    AFTER,
    COLUMNS,
    FunctionReader,
    LanguageRanking,
    Place,
    Reading,
    first_within,
    function_tokens,
    ranked_again,
    repair_tokens,
)
from harness.solvers.search.patterns import Repair, repairs_of
from pytest_ssr.errors import SettingsError
from pytest_ssr.source.syntax_tree import Edit, parse, scopes

Items = list[tuple[float, Place, Repair]]
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

    def open(self, text: str) -> Likes.Reader:
        return Likes.Reader(self, len(text))

    @dataclass
    class Reader:
        scorer: Likes
        tokens: int

        def glance(self, variants: Sequence[Variant]) -> list[float | None]:
            return [1.0 if self.scorer.liked in v.text else None for v in variants]

        def read(self, variants: Sequence[Variant], *, after: int) -> list[Scores | None]:
            return [
                Scores(
                    tuple(0.0 if self.scorer.liked in v.text else -1.0 for _ in range(v.start, v.end)),
                    (-0.5,) * min(after, len(v.text) - v.end),
                )
                for v in variants
            ]


def places() -> list[Place]:
    source = parse("a.py", SOURCE)
    assert source is not None
    return [Place(source, scope) for scope in scopes(source) if scope.kind == "function"]


def ranking(scorer, *, tokens: int = 10**6) -> LanguageRanking:
    weights = tuple(1.0 if name == "mean_added" else 0.0 for name in COLUMNS)
    return LanguageRanking("smollm2", scorer.key, 1.0, weights, 0.0, 0.0, tokens, scorer)


def ranked(language: LanguageRanking, items: Items) -> tuple[list[float], Reading]:
    return ranked_again(language, items, [0.0] * len(items))


def listed(count: int = 5) -> Items:
    result = []
    for place in places():
        repairs = [r for r in repairs_of(place.source, place.scope, scopes(place.source)) if len(r.edits) == 1]
        repairs = sorted(repairs, key=lambda r: abs(len(r.edits[0].text) - 6))[:count]
        result += [(-float(i), place, repair) for i, repair in enumerate(repairs)]
    return sorted(result, key=lambda item: -item[0])


def test_columns_describe_the_tokens_that_a_repair_changes():
    place = places()[0]
    at = SOURCE.index(b"> best")
    repair = Repair("a.py", "p", 1.0, (Edit(at, at + 1, b"<="),), 5, 5, (2, 7))
    reader = FunctionReader(Likes("<="), place)
    (row,) = reader.columns([repair])
    assert reader.glances([repair]) == [1.0]
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
    assert reader.tokens == len(SOURCE[SOURCE.index(b"    def") : place.scope.end])


def test_what_cannot_be_read_has_no_columns(monkeypatch):
    place = places()[0]
    outside = Repair("a.py", "p", 1.0, (Edit(0, 5, b"x"),), 1, 1, (2, 7))
    inside = Repair("a.py", "p", 1.0, (Edit(place.scope.start + 10, place.scope.start + 11, b"\xff"),), 2, 2, (2, 7))
    reader = FunctionReader(Likes("x"), place)
    assert reader.columns([outside, inside]) == [None, None]
    assert reader.glances([outside, inside]) == [0.0, 0.0]
    monkeypatch.setattr(language, "_LONGEST_BYTES", 10)
    reader = FunctionReader(Likes("x"), place)
    assert reader.columns([inside]) == [None]
    assert reader.tokens == 0


def test_the_model_ranks_within_a_function_and_probabilities_add_up():
    items = listed()
    plain, nothing = ranked(ranking(Likes("never")), items)
    for place in places():
        own = [math.exp(v) for v, (_, p, _) in zip(plain, items, strict=True) if p.scope.start == place.scope.start]
        assert sum(own) == pytest.approx(1)
    assert nothing.read == nothing.candidates == len(items)
    last = items[-1][2]
    text = last.edits[0].text.decode()
    liked, _ = ranked(replace(ranking(Likes(text)), policy=0.0), items)
    same = [
        v
        for v, (_, p, _) in zip(liked, items, strict=True)
        if p.source.path and p.scope.start == items[-1][1].scope.start
    ]
    assert liked[-1] == max(same)


def test_a_budget_is_a_number_of_candidates_that_needs_no_clock():
    repairs = [repair for _, _, repair in listed()]
    counts = [first_within(repairs, tokens) for tokens in (0, 30, 60, 10**6)]
    assert counts[0] == 0 < counts[1] < counts[2] < counts[3] == len(repairs)


def test_what_is_likely_at_a_glance_is_read_first():
    repairs = [item for item in listed() if item[1].scope.start == places()[0].scope.start]
    place, last = repairs[-1][1:]
    rare = replace(last, edits=(Edit(last.edits[0].start, last.edits[0].end, b"rare"),))
    items = [*((0.0, place, repair) for _, place, repair in repairs[:-1]), (0.0, place, rare)]
    language = ranking(Likes("rare"), tokens=function_tokens(place) + AFTER + 4)
    values, reading = ranked(replace(language, read=100.0), items)
    assert 1 <= reading.read < len(items)
    read = {n for n, value in enumerate(values) if value > max(values) - 50}
    assert len(read) == reading.read
    assert len(items) - 1 in read


def test_functions_without_a_good_candidate_are_not_read():
    one, other = places()
    items = [(-float(i), p, r) for i, (_, p, r) in enumerate(sorted(listed(), key=lambda i: i[1] is not other))]
    first = [item for item in items if item[1].scope.start == other.scope.start]
    rest = [item for item in items if item[1].scope.start == one.scope.start]
    tokens = function_tokens(other) + 2 * repair_tokens(first[0][2])
    _, reading = ranked(ranking(Likes("x"), tokens=tokens), [*first, *rest])
    assert 1 <= reading.read <= 2
    assert reading.tokens == other.scope.end - other.scope.start
    _, reading = ranked(ranking(Likes("x")), [*first, *rest])
    assert reading.read == len(items)


def test_without_a_budget_the_policy_decides():
    items = listed()
    values, reading = ranked(ranking(Likes("x"), tokens=1), items)
    assert (reading.read, reading.tokens) == (0, 0)
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
