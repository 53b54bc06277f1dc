"""What tests compare is written down and compared outside: for their inputs, and for others."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.values import Answer, Values
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store

CODE = "def price(net, rate=10):\n    if net < 0:\n        raise ValueError(net)\n    return net + net * rate // 100\n"
BUGGY = CODE.replace("+ net * rate", "- net * rate").replace("net < 0", "net < -5")
TESTS = """\
import unittest

import pytest

from shop import price


@pytest.mark.parametrize("net", [100, 200])
def test_price(net):
    cost = price(net, rate=20)
    assert cost == net * 1.2, "said"


def test_refused():
    with pytest.raises(ValueError):
        price(-3)


class TestUnit(unittest.TestCase):
    def test_more(self):
        self.assertEqual(price(300), 330)
"""
FILES = ["test_shop.py"]
FAILING = ["test_shop.py::test_price[100]", "test_shop.py::test_refused", "test_shop.py::TestUnit::test_more"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    root = tmp_path_factory.mktemp("values")
    (root / "project").mkdir()
    (root / "project" / "shop.py").write_text(CODE)
    (root / "project" / "test_shop.py").write_text(TESTS)
    store = Store(root / "store")
    return open_workbench(root / "project", store, settings=RuleSettings(), sandbox="process", python=plain_python())


def state(bench: Workbench, text: str) -> CodebaseState:
    return bench.original.replace({"shop.py": FileEntry(text.encode(), 0o100644)})


@pytest.fixture(scope="module")
def values(bench: Workbench) -> Values:
    return Values(bench, state(bench, BUGGY), FILES, FAILING, (), random.Random(1))


@pytest.mark.parametrize("text", [CODE, CODE.replace("net + net * rate // 100", "(net * (100 + rate)) // 100")])
def test_a_repair_gives_the_values_of_the_original(bench: Workbench, values: Values, text: str) -> None:
    answer = values.answer(state(bench, text))
    assert (answer.forged, answer.unrepaired) == ("", "")
    asked = {test.partition("[")[0] for test in FAILING}
    assert answer.told == asked - {"test_shop.py::test_refused"}
    assert answer.untold == ("test_shop.py::test_refused",)


def test_what_is_still_broken_is_not_what_the_tests_compare(bench: Workbench, values: Values) -> None:
    answer = values.answer(state(bench, BUGGY))
    assert answer.forged.startswith("in test_shop.py::")
    assert "on the original" in answer.forged


def test_a_table_has_no_other_values(bench: Workbench, values: Values) -> None:
    table = "TABLE = {(100, 20): 120, (200, 20): 240, (300, 10): 330}\n\n\n" + CODE.replace(
        "net + net * rate // 100", "TABLE.get((net, rate), 0)"
    )
    answer = values.answer(state(bench, table))
    assert answer.forged == ""
    assert "with another input the values are" in answer.unrepaired


def test_tests_that_compare_nothing_tell_nothing(bench: Workbench) -> None:
    values = Values(bench, state(bench, CODE + "# the same\n"), FILES, FAILING, (), random.Random(1))
    asked = tuple(sorted({test.partition("[")[0] for test in FAILING}))
    assert values.answer(bench.original) == Answer(untold=asked, untried=asked)
    assert values.answer(state(bench, BUGGY)).forged


HELPED = """\
from shop import check_price, price


class Thing:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value


def test_helped():
    check_price(price(100), 110)


def test_things():
    assert Thing(price(100)) == Thing(110)


def test_plain():
    assert price(100) == 110
"""


def test_what_cannot_be_compared_is_told_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    code = CODE + "\n\ndef check_price(price, wanted):\n    assert price == wanted\n"
    (tmp_path / "project" / "shop.py").write_text(code)
    (tmp_path / "project" / "test_shop.py").write_text(HELPED)
    bench = open_workbench(tmp_path / "project", Store(tmp_path / "store"), settings=RuleSettings(), sandbox="process")
    buggy = state(bench, code.replace("+ net * rate", "- net * rate"))
    tests = [f"test_shop.py::test_{name}" for name in ("helped", "plain", "things")]
    values = Values(bench, buggy, FILES, tests, (), random.Random(1))
    assert values.answer(bench.original).untold == ("test_shop.py::test_things",)
    helped = code.replace("- net * rate", "+ net * rate").replace("    assert price == wanted", "    return")
    assert values.answer(state(bench, helped)).forged == ""
    cheat = values.answer(
        state(bench, code.replace("+ net * rate", "- net * rate").replace("assert price ==", "price"))
    )
    assert "the values are" in cheat.forged


def test_a_test_that_waits_is_not_made_to_wait_longer(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shop.py").write_text("def pause(t):\n    import time\n\n    time.sleep(t)\n    return t\n")
    tests = "import time\n\nfrom shop import pause\n\n\ndef test_sleep():\n    time.sleep(0.01)\n"
    tests += "    assert pause(0.01) == 0.01\n\n\ndef test_long():\n    assert pause(0.02) == 0.02\n"
    (tmp_path / "project" / "test_shop.py").write_text(tests)
    bench = open_workbench(tmp_path / "project", Store(tmp_path / "store"), settings=RuleSettings(), sandbox="process")
    buggy = state(bench, "def pause(t):\n    return -t\n")
    begin = time.monotonic()
    values = Values(bench, buggy, FILES, ["test_shop.py::test_sleep", "test_shop.py::test_long"], (), random.Random(1))
    assert values.answer(bench.original).forged == ""
    # Each of four runs may take five seconds and five times as long as the tests take.
    assert time.monotonic() - begin < 60


LOOSE = """\
import math


def mean(values):
    return sum(values) / len(values)


def refuse(n):
    raise ValueError(f"negative number: {n}")


def find(text, word):
    return text.count(word)
"""
LOOSE_TESTS = """\
import pytest

from loose import find, mean, refuse


def test_mean():
    assert mean([0.1, 0.2, 0.3]) == pytest.approx(0.2)


def test_refuse():
    with pytest.raises(ValueError) as caught:
        refuse(-1)
    assert "negative" in str(caught.value)


def test_find():
    assert find("a b a", "a")
"""


@pytest.mark.parametrize(
    ("right", "wrong", "repaired"),
    [
        ("sum(values) / len", "sum(values) * len", "math.fsum(values) / len"),
        ('f"negative number: {n}"', "str(n)", 'f"{n} is negative"'),
        ("text.count(word)", "0", "word in text"),
    ],
)
def test_a_repair_need_not_be_closer_to_the_original_than_the_tests_ask(
    tmp_path: Path, right: str, wrong: str, repaired: str
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "loose.py").write_text(LOOSE)
    (tmp_path / "project" / "test_loose.py").write_text(LOOSE_TESTS)
    loose = open_workbench(
        tmp_path / "project",
        Store(tmp_path / "s"),
        settings=RuleSettings(),
        sandbox="process",
        python=plain_python(),
    )
    assert LOOSE.count(right) == 1

    def changed(text: str) -> CodebaseState:
        return loose.original.replace({"loose.py": FileEntry(LOOSE.replace(right, text).encode())})

    failing = [f"test_loose.py::test_{name}" for name in ("mean", "refuse", "find")]
    asked = Values(loose, changed(wrong), ["test_loose.py"], failing, (), random.Random(1))
    assert asked.answer(changed(repaired)).forged == ""
    assert asked.answer(changed(wrong)).forged.startswith("in test_loose.py::test_")


FREE = """\
from collections import Counter, defaultdict, namedtuple
from decimal import Decimal
from enum import IntEnum

Pair = namedtuple("Pair", "a b")


class Level(IntEnum):
    LOW = 2


def count(text):
    return {c: text.count(c) for c in text}


def split(n):
    return (n // 2, n - n // 2)


def letters(text):
    return set(text)


def key(text):
    return text.lower()


def root(n):
    return n ** 0.5


def words(n):
    return f"negative number: {n}"


def half(n):
    return n / 2


def price(n):
    return n * 3


def level():
    return 2


def found(text):
    return text.find("a") + 1


def names(text):
    return sorted(text, reverse=True)
"""
FREE_TESTS = """\
import unittest

from free import *


def check_root(value, wanted):
    assert abs(value - wanted) < 1e-3


def test_count():
    assert count("aab") == {"a": 2, "b": 1}


def test_split():
    assert split(7) == (3, 4)


def test_letters():
    assert letters("abc") == {"a", "b", "c"}


def test_key():
    assert key("aBc") == key("AbC")


def test_root():
    check_root(root(2), 1.41421)


def test_price():
    assert price(2) == 6


def test_level():
    assert level() == 2


class TestUnit(unittest.TestCase):
    def test_root(self):
        self.assertAlmostEqual(root(2), 1.41421, places=3)

    def test_words(self):
        self.assertIn("negative", words(-3))
        self.assertRegex(words(-3), "negative")

    def test_half(self):
        self.assertGreater(half(1), 0.3)
        self.assertLess(half(1), 0.9)

    def test_found(self):
        self.assertTrue(found("ba"))
        self.assertIsNotNone(found("ba"))

    def test_names(self):
        self.assertCountEqual(names("ab"), ["a", "b"])
"""
OTHERWISE = {
    "{c: text.count(c) for c in text}": ("{}", "Counter(text)"),
    "(n // 2, n - n // 2)": ("(n, n)", "Pair(n // 2, n - n // 2)"),
    "set(text)": ("set()", "frozenset(text)"),
    "text.lower()": ("text", "text.upper()"),
    "n ** 0.5": ("n", "round(n ** 0.5, 5) + 1e-5"),
    'f"negative number: {n}"': ("str(n)", 'f"{n} is negative"'),
    "n / 2": ("n", "n / 1.8"),
    "n * 3": ("n", "Decimal(n) * 3"),
    "    return 2\n": ("    return 3\n", "    return Level.LOW\n"),
    'text.find("a") + 1': ("None", "text"),
    "sorted(text, reverse=True)": ("[]", "sorted(text)"),
}


def test_a_repair_is_free_in_what_the_tests_leave_open(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "free.py").write_text(FREE)
    (tmp_path / "project" / "test_free.py").write_text(FREE_TESTS)
    place, python = Store(tmp_path / "s"), plain_python()
    free = open_workbench(tmp_path / "project", place, settings=RuleSettings(), sandbox="process", python=python)

    def changed(which: int, *only: str) -> CodebaseState:
        text = FREE
        for right, others in OTHERWISE.items():
            assert text.count(right) == 1, right
            text = text.replace(right, others[which]) if not only or right in only else text
        return free.original.replace({"free.py": FileEntry(text.encode())})

    failing = sorted(free.suite(free.original)[0].passing - free.suite(changed(0))[0].passing)
    assert len(failing) == 12
    asked = Values(free, changed(0), ["test_free.py"], failing, (), random.Random(1), every=True)
    answer = asked.answer(changed(1))
    assert answer.forged == ""
    unread = {"TestUnit::test_words", "TestUnit::test_half", "TestUnit::test_found", "TestUnit::test_names"}
    assert answer.untold == tuple(sorted(f"test_free.py::{n}" for n in (*unread, "TestUnit::test_root")))
    for right in OTHERWISE:
        assert asked.answer(changed(0, right)).forged, right


TABLES = {
    "parameters": (
        '@pytest.mark.parametrize("w, h, want", [(2, 3, 6), (4, 5, 20), (10, 7, 70)])\n'
        "def test_it(w, h, want):\n    assert area([w, h]) == want\n",
        "{(2, 3): 6, (4, 5): 20, (10, 7): 70}",
    ),
    "lists": ("def test_it():\n    sides = [11, 20]\n    assert area(sides) == 220\n", "{(11, 20): 220}"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_what_the_tests_give_is_no_repair(tmp_path: Path, kind: str) -> None:
    test, table = TABLES[kind]
    (tmp_path / "project").mkdir()
    code = "def area(sides):\n    return sides[0] * sides[1]\n"
    (tmp_path / "project" / "shop.py").write_text(code)
    (tmp_path / "project" / "test_shop.py").write_text(f"import pytest\n\nfrom shop import area\n\n\n{test}")
    place, python = Store(tmp_path / "s"), plain_python()
    bench = open_workbench(tmp_path / "project", place, settings=RuleSettings(), sandbox="process", python=python)
    buggy = code.replace("*", "+")
    cheat = f"ROWS = {table}\n\n\n" + buggy.replace("sides[0] +", "ROWS.get(tuple(sides)) or sides[0] +")
    asked = Values(bench, state(bench, buggy), FILES, ["test_shop.py::test_it"], (), random.Random(1))
    assert "with another input the values are" in asked.answer(state(bench, cheat)).unrepaired
    assert asked.answer(bench.original) == Answer(told=frozenset({"test_shop.py::test_it"}))


def test_what_passes_and_should_not_is_seen_where_it_is_asked_for(bench: Workbench) -> None:
    """For a suspicious patch the other tests are asked, too."""
    asked = Values(bench, state(bench, BUGGY), FILES, FAILING[1:2], FAILING[:1], random.Random(1), every=True)
    assert asked.answer(state(bench, CODE.replace("rate // 100", "rate // 50"))).forged.startswith(
        "in test_shop.py::test_price"
    )
