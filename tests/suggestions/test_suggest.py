"""Test suggested tests on small projects in a sandbox, friendly and hostile ones."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from suggested_project import campaign_on, suggested

from pytest_ssr.campaign.ending import Ending
from pytest_ssr.campaign.facts import facts_of
from pytest_ssr.campaign.findings import findings_of
from pytest_ssr.campaign.results_json import results_json
from pytest_ssr.campaign.score import score_of
from pytest_ssr.campaign.suggested_tests import suggest_tests, survivors_for_tests
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.storage.store import Store
from pytest_ssr.suggestions.suggest import Suggester

SHOP = """\
import datetime


def due(day):
    return day + datetime.timedelta(days=7 if day.month < 12 else 14)


def price(amount, rate=1, rounded=False):
    if amount < 0:
        raise ValueError("amount")
    if amount > 100:
        return amount * rate - 5
    return _exact(amount, rate)


def _exact(amount, rate):
    return amount * rate


class Basket:
    def __init__(self, limit):
        self.limit = limit

    def fits(self, *items):
        return len(items) <= self.limit

    def sizes(self, first):
        for size in range(first, self.limit):
            yield size


    def raise_limit(self, by):
        self.limit += by


def of_object(item, like, at):
    return item is not None


def room(basket, count=len):
    return basket.limit - count("ab")


def basket(limit):
    return Basket(limit)


def unused(a, b, c):
    return a + 1


def spare(a):
    return a * 3


def shown(a):
    '''Return the next number.

    >>> shown(2)
    3
    '''
    return a + 1 if a < 9 else 0


def label(name):
    return str({name, *"tuvwxyz"}) + name.strip()
"""
TESTS = """\
import datetime

import shop


def test_due():
    assert shop.due(datetime.date(2024, 5, 1)) > datetime.date(2024, 5, 1)


def test_price():
    assert shop.price(0, 2) == 0
    assert shop.price(3) == 3


def test_basket():
    assert shop.Basket(4).fits(1, 2)
    assert list(shop.Basket(3).sizes(2))
    assert shop.of_object(object(), object(), object())
    assert shop.label("a")
    assert shop.basket(2)
    assert shop.room(shop.Basket(4))
    shop.Basket(1).raise_limit(2)
"""

BOUNDARY_TEST = """\
import pytest

from shop import price


def test_price_minus_1_raises():
    # notices: if amount < 0: -> if amount <= -2:
    with pytest.raises(ValueError):
        price(-1)
"""


@pytest.mark.long
def test_a_suggested_test_fails_with_the_change_and_passes_without(tmp_path: Path) -> None:
    with campaign_on(tmp_path, SHOP, TESTS) as campaign:
        boundary = suggested(campaign, "amount < 0", "amount <= -2")
        assert boundary.test == BOUNDARY_TEST
        assert boundary.folder == ""
        expected = {
            "assert price(101) == 96": ("rate - 5", "rate + 5"),
            # The private function changes; the test calls the public one that leads to it.
            "assert price(1, rate=2) == 2": ("return amount * rate\n", "return amount\n"),
            "assert Basket(2).fits(1, 2)": ("<= self.limit", "< self.limit"),
            "assert basket(2).limit == 2": ("return Basket(limit)", "return Basket(limit + 1)"),
            "assert Basket(1).limit == 1": ("self.limit = limit", "self.limit = limit + 1"),
            "assert due(datetime.date(2024, 12, 31)) == datetime.date(2025, 1, 14)": ("else 14", "else 13"),
            "assert list(Basket(4).sizes(2)) == [2, 3]": ("range(first, self.limit)", "range(first, 3)"),
            # Nothing calls it.
            "assert spare(1) == 3": ("a * 3", "a * 4"),
            # An object of the project, a method that returns nothing, and an example in a docstring.
            "assert room(Basket(4), len) == 2": ("basket.limit - count", "basket.limit + count"),
            "assert basket.limit == 3": ("self.limit += by", "self.limit -= by"),
            "assert shown(2) == 3": ("a + 1 if", "a + 2 if"),
        }
        found = {line: suggested(campaign, *change).test.splitlines()[-1].strip() for line, change in expected.items()}
        assert found == {line: line for line in expected}
        reasons = {
            NoSuggestion.NO_LITERAL_INPUTS: ("is not None", "is not 3"),
            NoSuggestion.NOT_REACHED: ("a + 1\n", "a - 1\n"),
            # The order of a set depends on the hash seed.
            NoSuggestion.NOT_DETERMINISTIC: ("+ name.strip()", "+ name"),
            NoSuggestion.NO_DIFFERENCE: ("amount > 100", "100 < amount"),
        }
        assert {reason: suggested(campaign, *change).reason for reason, change in reasons.items()} == {
            reason: reason for reason in reasons
        }


HOSTILE = """\
import os
import sys
import time


class Liar(str):
    def __repr__(self):
        return "'right'"

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def lies(a):
    return Liar(a + 1)


def prints(a):
    print('[0, ["value", "7"]]\\n' * 99, flush=True)
    return a + 2


def forks(a):
    if os.fork() == 0:
        return a + 3
    os.wait()
    return a + 3


def sleeps(a):
    if a > 1:
        time.sleep(3600)
    return a + 4


def leaves(a):
    if a > 1:
        os._exit(0)
    return a + 5


def guesses(a):
    # Another result in a process of pytest.
    return a + 6 if "pytest" in sys.modules else a + 8
"""
HOSTILE_TESTS = """\
import shop


def test_all():
    for function in (shop.lies, shop.prints, shop.sleeps, shop.leaves, shop.guesses):
        assert function(1)
"""


@pytest.mark.long
def test_hostile_functions_neither_break_the_search_nor_fake_a_test(tmp_path: Path) -> None:
    with campaign_on(tmp_path, HOSTILE.replace("Liar(a + 1)", "Liar(a)"), HOSTILE_TESTS) as campaign:
        # Its comparison and its representation lie; `str` gives the true text.
        lying = suggested(campaign, "Liar(a)", "Liar(a * 2)")
        assert lying.test.endswith('    assert str(lies(1)) == "1"\n')
        printing = suggested(campaign, "a + 2", "a - 2")
        assert printing.test.endswith("    # notices: return a + 2 -> return a - 2\n    assert prints(1) == 3\n")
        assert suggested(campaign, "a + 4", "a - 4").test.endswith("assert sleeps(1) == 5\n")
        assert suggested(campaign, "a + 5", "a - 5").test.endswith("assert leaves(1) == 6\n")
        assert suggested(campaign, "a + 8", "a + 9").reason is NoSuggestion.NOT_VERIFIED
        assert suggested(campaign, "a + 3", "a - 3").reason is NoSuggestion.NO_DIFFERENCE


@pytest.mark.long
def test_suggestions_are_stored_and_belong_to_the_findings(tmp_path: Path) -> None:
    code, tests = "def large(x):\n    return x > 7\n", "import shop\n\n\ndef test():\n    assert not shop.large(0)\n"
    with campaign_on(tmp_path, code, tests) as campaign:
        results = [result for index in range(3) if (result := campaign.attempt(index)) is not None]
        survivors = [r.index for r in results if r.status is CandidateStatus.SURVIVED]
        assert survivors
        over = suggest_tests(campaign, survivors_for_tests(campaign, results, 1), deadline=-math.inf)
        assert [s.reason for s in over.tests] == [NoSuggestion.LIMIT]
        assert not findings_of(campaign, results).suggestions
        (first,) = suggest_tests(campaign, survivors_for_tests(campaign, results, 1), deadline=math.inf).tests
        assert "large(" in first.test
        runs = campaign.runner.counts.runs
        assert suggest_tests(campaign, survivors_for_tests(campaign, results, 1), deadline=math.inf).tests == [first]
        assert campaign.runner.counts.runs == runs
        assert findings_of(campaign, results).suggestions == {first.index: first}
        score = score_of(results, campaign.snapshot.read, Goal(1))

        def as_json(found: Sequence[CandidateResult], suggestions: Sequence[SuggestedTest] = ()) -> dict[str, Any]:
            return results_json(
                facts_of(campaign),
                Goal(1),
                found,
                score,
                read=campaign.snapshot.read,
                ending=Ending.of(Goal(1), found),
                fail_under=None,
                seconds=1.0,
                store=campaign.store.root,
                suggestions=suggestions,
            )

        data = as_json(results, [first])
        assert [SuggestedTest.from_json(s) for s in json.loads(json.dumps(data))["suggested_tests"]] == [first]
        assert {(s["equivalence"], s["proven_equivalent"]) for s in data["survivors"]} == {(None, False)}
        proven = [replace(r, sign="bound") for r in results]
        data = as_json(proven)
        assert {(s["equivalence"], s["proven_equivalent"]) for s in data["survivors"]} == {("bound", True)}
        assert not suggest_tests(campaign, survivors_for_tests(campaign, proven, 1), deadline=math.inf).tests


def test_what_is_found_before_an_interrupt_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survivors = [
        CandidateResult(index, CandidateStatus.SURVIVED, "mutation", "change", "shop.py", 1, "f", "", "")
        for index in range(3)
    ]
    snapshot = SimpleNamespace(read=lambda path: b"def f():\n    pass\n", allowed=["shop.py"])
    store = Store(tmp_path / "store")
    runner = SimpleNamespace(snapshot=snapshot, fork_server=None)
    campaign: Any = SimpleNamespace(
        key="k", store=store, snapshot=snapshot, seed=0, runner=runner, baseline=None, candidate=lambda index: index
    )
    first = SuggestedTest(0, "shop.py", 1, "f", "def test():\n    assert f()\n")

    def suggest(self: Suggester, survivor: CandidateResult, changed: object) -> SuggestedTest:
        if survivor.index:
            raise KeyboardInterrupt
        return first

    monkeypatch.setattr(Suggester, "suggest", suggest)
    monkeypatch.setattr(Suggester, "confirm", lambda self, found: found)
    monkeypatch.setattr("pytest_ssr.campaign.suggested_tests.candidate_state", lambda *_: None)
    shown: list[str] = []
    found = suggest_tests(campaign, survivors, deadline=math.inf, progress=shown.append)
    assert (list(found.tests), found.is_interrupted) == ([first], True)
    assert SuggestedTest.from_json(store.record("suggestions/k", "00000")) == first
    assert shown[-1] == "", "the progress line is removed"
