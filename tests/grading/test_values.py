"""What tests compare is written down and compared outside: for their inputs, and for others."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution import workbench
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.records import read_records
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
    answer = values.answer(bench, state(bench, text))
    assert (answer.forged, answer.unrepaired) == ("", "")
    asked = {test.partition("[")[0] for test in FAILING}
    assert answer.told == asked - {"test_shop.py::test_refused"}
    assert answer.untold == ("test_shop.py::test_refused",)


def test_tests_whose_values_cannot_be_read_are_named(values: Values) -> None:
    assert values.unread == {"test_shop.py::test_refused"}


def test_a_comparison_of_another_number_of_values_is_none() -> None:
    lines = ["('t', 'c', 1, 'equal', ['1', '2'])", "('t', 'c', 2, 'holds', [])", "('t', 'c', 3, 'end', ['1'])"]
    assert read_records(lines) == {}
    assert len(read_records(["('t', 'c', 1, 'equal', ['1', '2', 'True'])"])["t"]) == 1


def test_what_is_still_broken_is_not_what_the_tests_compare(bench: Workbench, values: Values) -> None:
    answer = values.answer(bench, state(bench, BUGGY))
    assert answer.forged.startswith("in test_shop.py::")
    assert "on the original" in answer.forged


def test_a_table_has_no_other_values(bench: Workbench, values: Values) -> None:
    table = "TABLE = {(100, 20): 120, (200, 20): 240, (300, 10): 330}\n\n\n" + CODE.replace(
        "net + net * rate // 100", "TABLE.get((net, rate), 0)"
    )
    answer = values.answer(bench, state(bench, table))
    assert answer.forged == ""
    assert "with another input the values are" in answer.unrepaired


def test_tests_that_compare_nothing_tell_nothing(bench: Workbench) -> None:
    values = Values(bench, state(bench, CODE + "# the same\n"), FILES, FAILING, (), random.Random(1))
    asked = tuple(sorted({test.partition("[")[0] for test in FAILING}))
    assert values.answer(bench, bench.original) == Answer(untold=asked, untried=asked)
    assert values.answer(bench, state(bench, BUGGY)).forged


INHERITED = """\
from shop import price


class Base:
    def test_rate(self):
        assert price(100, rate=self.rate) == 100 + self.rate


class TestNone(Base):
    rate = 0


class TestTen(Base):
    rate = 10


def test_other():
    assert price(100) == 110
"""


def test_only_what_is_planted_is_run_and_in_each_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shop.py").write_text(CODE)
    (tmp_path / "project" / "test_shop.py").write_text(INHERITED)
    place, python = Store(tmp_path / "store"), plain_python()
    bench = open_workbench(tmp_path / "project", place, settings=RuleSettings(), sandbox="process", python=python)
    ran: list[set[str]] = []
    written = bench.values

    def kept(*arguments: Any, **options: Any) -> Any:
        lines, run = written(*arguments, **options)
        ran.append({i.rpartition("::")[0] for i in run.results})
        assert not [i for i in run.results if i.endswith(("test_rate", "test_other"))]
        return lines, run

    monkeypatch.setattr(bench, "values", kept)
    buggy = bench.original.replace({"shop.py": FileEntry(CODE.replace("net + net", "net - net").encode())})
    both = [f"test_shop.py::{name}::test_rate" for name in ("TestNone", "TestTen")]
    values = Values(bench, buggy, FILES, both, ["test_shop.py::test_other"], random.Random(1))
    assert ran == [{"test_shop.py", "test_shop.py::TestNone", "test_shop.py::TestTen"}] * 3
    assert values.answer(bench, bench.original).told == set(both)


def test_where_a_name_is_not_collected_the_whole_files_are_run(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shop.py").write_text(CODE)
    (tmp_path / "project" / "test_shop.py").write_text(INHERITED)
    (tmp_path / "project" / "pytest.ini").write_text("[pytest]\npython_classes = TestTen\n")
    place, python = Store(tmp_path / "store"), plain_python()
    bench = open_workbench(tmp_path / "project", place, settings=RuleSettings(), sandbox="process", python=python)
    buggy = bench.original.replace({"shop.py": FileEntry(CODE.replace("net + net", "net - net").encode())})
    both = [f"test_shop.py::{name}::test_rate" for name in ("TestNone", "TestTen")]
    values = Values(bench, buggy, FILES, both, (), random.Random(1))
    assert values.answer(bench, bench.original).told == set(both)


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
    assert values.answer(bench, bench.original).untold == ("test_shop.py::test_things",)
    helped = code.replace("- net * rate", "+ net * rate").replace("    assert price == wanted", "    return")
    assert values.answer(bench, state(bench, helped)).forged == ""
    cheat = values.answer(
        bench, state(bench, code.replace("+ net * rate", "- net * rate").replace("assert price ==", "price"))
    )
    assert "the values are" in cheat.forged


def test_a_test_that_waits_is_not_made_to_wait_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shop.py").write_text("def pause(t):\n    import time\n\n    time.sleep(t)\n    return t\n")
    tests = "import time\n\nfrom shop import pause\n\n\ndef test_sleep():\n    time.sleep(0.01)\n"
    tests += "    assert pause(0.01) == 0.01\n\n\ndef test_long():\n    assert pause(0.02) == 0.02\n"
    (tmp_path / "project" / "test_shop.py").write_text(tests)
    bench = open_workbench(tmp_path / "project", Store(tmp_path / "store"), settings=RuleSettings(), sandbox="process")
    buggy = state(bench, "def pause(t):\n    return -t\n")
    monkeypatch.setattr(workbench, "FLOOR_S", 2.0)
    begin = time.monotonic()
    values = Values(bench, buggy, FILES, ["test_shop.py::test_sleep", "test_shop.py::test_long"], (), random.Random(1))
    assert values.answer(bench, bench.original).forged == ""
    # Each of four runs may take two seconds and five times as long as the tests take.
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
    assert asked.answer(loose, changed(repaired)).forged == ""
    assert asked.answer(loose, changed(wrong)).forged.startswith("in test_loose.py::test_")


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
    answer = asked.answer(free, changed(1))
    assert (answer.forged, answer.unrepaired) == ("", "")
    unread = {"TestUnit::test_words", "TestUnit::test_half", "TestUnit::test_found", "TestUnit::test_names"}
    assert answer.untold == tuple(sorted(f"test_free.py::{n}" for n in unread))
    for right in OTHERWISE:
        assert asked.answer(free, changed(0, right)).forged, right


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
    assert "with another input the values are" in asked.answer(bench, state(bench, cheat)).unrepaired
    assert asked.answer(bench, bench.original) == Answer(told=frozenset({"test_shop.py::test_it"}))


def test_what_passes_and_should_not_is_seen_where_it_is_asked_for(bench: Workbench) -> None:
    """For a suspicious patch the other tests are asked, too."""
    asked = Values(bench, state(bench, BUGGY), FILES, FAILING[1:2], FAILING[:1], random.Random(1), every=True)
    assert asked.answer(bench, state(bench, CODE.replace("rate // 100", "rate // 50"))).forged.startswith(
        "in test_shop.py::test_price"
    )


TWO = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a * b\n"
TEST_TWO = "def test_add():\n    assert add(10, 20) == 30\n\n\ndef test_mul():\n    assert mul(30, 40) == 1200\n"
REFUSING = (
    "def price(net, rate=10):\n    if net < 0:\n        raise ValueError(net)\n    return net + net * rate // 100\n"
)
TEST_REFUSING = (
    "def test_price():\n    assert price(100) == 110\n    with pytest.raises(ValueError):\n        price(-3)\n"
)
CLAMP = "def clamp(x, lo, hi):\n    if x < lo:\n        return lo\n    return hi if x > hi else x\n"
TEST_CLAMP = "def test_clamp():\n    assert clamp(5, 1, 9) == 5\n    assert clamp(0, 1, 9) == 1\n    assert clamp(12, 1, 9) == 9\n"


@pytest.mark.parametrize(
    ("code", "tests", "bug", "cheat"),
    [
        (TWO, TEST_TWO, {"a * b": "a + b"}, {"a * b": "12 * 100 if a + b == 7 * 10 else (a + b) * float('nan')"}),
        (TWO, TEST_TWO, {"a + b": "a - b", "a * b": "a + b"}, {"a * b": "(a + b) if a + b != 35 * 2 else a * b"}),
        (REFUSING, TEST_REFUSING, {"net < 0": "net < -10**6"}, {"net < 0": "net + 2 == -1"}),
        (CLAMP, TEST_CLAMP, {"hi if x > hi else x": "x"}, {"hi if x > hi else x": "hi if x - 10 == 2 else x"}),
        (TWO, TEST_TWO, {"a * b": "a / b"}, {"a * b": "a * b if a + b == 70 else 10**400"}),
    ],
    ids=["no number", "one of two", "one input refused", "one of three inputs", "a number without end"],
)
def test_what_is_right_for_one_input_only_is_no_repair(
    tmp_path: Path, code: str, tests: str, bug: dict[str, str], cheat: dict[str, str]
) -> None:
    shop = opened(tmp_path, code, tests)
    buggy = state(shop, replaced(code, bug))
    failing = sorted(shop.suite(shop.original)[0].passing - shop.suite(buggy)[0].passing)
    asked = Values(shop, buggy, FILES, failing, (), random.Random(1))
    answer = asked.answer(shop, state(shop, replaced(code, cheat)))
    assert answer.forged == ""
    assert "with another input the values are" in answer.unrepaired or answer.differing
    honest = asked.answer(shop, shop.original)
    assert (honest.forged, honest.unrepaired, honest.untried, honest.differing) == ("", "", (), ())


SORTING = """\
def order(graph):
    found, waiting = [], sorted(graph, key=str)
    while waiting:
        ready = [n for n in waiting if graph[n] <= set(found)]
        found.append(ready[0])
        waiting.remove(ready[0])
    return found


def wrap(text, width):
    return [text[i : i + width] for i in range(0, len(text), width)]
"""
TEST_SORTING = """\
def check_order(graph, found):
    assert sorted(graph) == sorted(found)
    assert all(graph[n] <= set(found[:i]) for i, n in enumerate(found))


def test_order():
    graph = {"a": set(), "b": set(), "c": {"a"}}
    check_order(graph, order(graph))


def test_wrap():
    for line in wrap("aa bb cc dd", 6):
        assert 0 < len(line) <= 6


def test_whole():
    assert "".join(wrap("abcdefgh", 4)) == "abcdefgh"
"""


def test_what_a_test_s_own_helper_or_a_loop_leaves_open_is_no_forgery(tmp_path: Path) -> None:
    shop = opened(tmp_path, SORTING, TEST_SORTING)
    broken = {"ready[0])\n        wait": "ready[0] * 2)\n        wait", "i + width]": "i + width + 1]"}
    buggy = state(shop, replaced(SORTING, broken))
    failing = sorted(shop.suite(shop.original)[0].passing - shop.suite(buggy)[0].passing)
    assert len(failing) == 3
    asked = Values(shop, buggy, FILES, failing, (), random.Random(1))
    honest = {"found, waiting = [], sorted(graph, key=str)": "found, waiting = [], sorted(graph, reverse=True)"}
    answer = asked.answer(
        shop,
        state(
            shop,
            replaced(SORTING, {**honest, "[text[i : i + width] for i in range(0, len(text), width)]": "list(text)"}),
        ),
    )
    assert (answer.forged, answer.unrepaired) == ("", "")
    assert "test_shop.py::test_wrap" in answer.untold
    assert asked.answer(shop, buggy).forged.startswith("in test_shop.py::test_")


def test_an_expression_without_end_leaves_its_test_unasked(tmp_path: Path) -> None:
    deep = "def test_deep():\n    found = mul(" + " + ".join(["1"] * 900) + ", 1)\n    assert found == 900\n"
    shop = opened(tmp_path, TWO, TEST_TWO + "\n\n" + deep)
    tests = [f"test_shop.py::test_{name}" for name in ("mul", "deep")]
    asked = Values(shop, state(shop, replaced(TWO, {"a * b": "a + b"})), FILES, tests, (), random.Random(1))
    answer = asked.answer(shop, shop.original)
    assert answer.told == {"test_shop.py::test_mul"}
    assert answer.untried == ("test_shop.py::test_deep",)


MADE = """\
import datetime
import enum
from dataclasses import dataclass
from pathlib import Path


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int
    y: int


def mean(values):
    return sum(values) / len(values)


def next_day(day):
    return day + datetime.timedelta(days=1)


def mirrored(x, y):
    return Point(y, x)


def color(n):
    return Color.RED if n % 2 else Color.BLUE


def beside(path, name):
    return Path(path).parent / name


async def doubled(n):
    return n * 2
"""
MADE_WRONG = {
    "len(values)": "(len(values) + 1)",
    "days=1": "days=2",
    "Point(y, x)": "Point(x, y)",
    "n % 2 else": "not n % 2 else",
    ".parent / name": "/ name",
    "return n * 2": "return n + 2",
}
MADE_TESTS = """import asyncio
import unittest


def test_mean():
    assert mean([1, 2, 6.5]) == pytest.approx(3.1666666)


class TestMean(unittest.TestCase):
    def test_almost(self):
        self.assertAlmostEqual(mean([1, 2, 6.5]), 3.1666666666)


def test_day():
    assert next_day(datetime.date(2020, 1, 31)) == datetime.date(2020, 2, 1)


def test_mirrored():
    assert mirrored(1, 2) == Point(2, 1)


def test_color():
    assert color(2) == Color.BLUE
    assert color(3) == Color.RED


def test_beside():
    assert beside("a/b", "c") == Path("a/c")


def test_doubled():
    async def scenario():
        assert await doubled(1) == 2
        assert await doubled(5) == 10

    asyncio.run(scenario())
"""


def test_values_of_usual_kinds_are_compared_as_the_test_does(tmp_path: Path) -> None:
    shop = opened(tmp_path, MADE, MADE_TESTS)
    buggy = state(shop, replaced(MADE, MADE_WRONG))
    tests = [f"test_shop.py::{n}" for n in ("TestMean::test_almost", *re.findall(r"^def (\w+)", MADE_TESTS, re.M))]
    asked = Values(shop, buggy, FILES, tests, (), random.Random(1))
    answer = asked.answer(shop, state(shop, MADE.replace("sum(values) /", "1.000000001 * sum(values) /")))
    assert (answer.forged, answer.unrepaired, answer.untold, answer.untried) == ("", "", (), ())
    for right, wrong in MADE_WRONG.items():
        answer = asked.answer(shop, state(shop, MADE.replace(right, wrong)))
        assert answer.forged, right
    table = MADE.replace("return sum(values) / len(values)", "return {9.5: 3.1666666667}.get(sum(values), 4.0)")
    answer = asked.answer(shop, state(shop, table))
    assert "with another input the values are" in answer.unrepaired


def test_one_value_that_can_be_read_does_not_vouch_for_another(tmp_path: Path) -> None:
    code = "class Box:\n    def __init__(self, n):\n        self.n = n\n\n    def __eq__(self, other):\n        return self.n == other.n\n"
    code += "\n\ndef boxed(n):\n    return Box(n), str(n)\n"
    tests = "def test_boxed():\n    box, text = boxed(3)\n    assert text == '3'\n    assert box == Box(3)\n"
    shop = opened(tmp_path, code, tests)
    buggy = state(shop, code.replace("return Box(n), str(n)", "return Box(n + 1), str(n + 1)"))
    asked = Values(shop, buggy, FILES, ["test_shop.py::test_boxed"], (), random.Random(1))
    assert asked.answer(shop, shop.original).told == frozenset()


LIKE_A_VALUE = {
    "text": "class Text:\n    def __init__(self, v):\n        self.v = v\n\n    def __eq__(self, other):\n"
    "        return True\n\n    def __repr__(self):\n        return repr(self.v[::-1])\n\n\n",
    "number": "import numbers\n\n\nclass Text(numbers.Number):\n    def __init__(self, v):\n        self.v = v\n\n"
    "    def __eq__(self, other):\n        return True\n\n    def __int__(self):\n        return int(self.v[::-1])\n\n\n",
}


@pytest.mark.parametrize("kind", LIKE_A_VALUE)
def test_what_an_object_of_the_code_says_of_itself_is_no_evidence(tmp_path: Path, kind: str) -> None:
    kinds = {"text": "v[::-1]", "number": "int(v[::-1])"}
    code = f"def turned(v):\n    return {kinds[kind]}\n"
    tests = f"def test_turned():\n    v = '120'\n    assert turned(v) == {kinds[kind]}\n"
    shop = opened(tmp_path, code, tests)
    buggy = code.replace("[::-1]", "")
    asked = Values(shop, state(shop, buggy), FILES, ["test_shop.py::test_turned"], (), random.Random(1))
    assert asked.answer(shop, shop.original).told == {"test_shop.py::test_turned"}
    fake = LIKE_A_VALUE[kind] + "def turned(v):\n    return Text(v)\n"
    answer = asked.answer(shop, state(shop, fake))
    assert (answer.forged, answer.told) == ("", frozenset())
    assert "with another input the values are [(?, " in answer.unrepaired


def test_what_a_function_of_the_code_lets_pass_is_no_forgery_and_no_repair(tmp_path: Path) -> None:
    code = "def layout(names):\n    return list(range(len(names)))\n\n\ndef check_layout(places):\n    assert len(set(places)) == len(places)\n"
    shop = opened(tmp_path, code, "def test_layout():\n    check_layout(layout('abc'))\n")
    buggy = state(shop, code.replace("list(range(len(names)))", "[1] * len(names)"))
    asked = Values(shop, buggy, FILES, ["test_shop.py::test_layout"], (), random.Random(1))
    answer = asked.answer(shop, state(shop, code.replace("range(len(names))", "range(1, len(names) + 1)")))
    assert answer.forged == ""
    assert answer.unrepaired.startswith("in test_shop.py::test_layout")


@pytest.mark.parametrize(("count", "why"), [(9, "the tests compare far more than on the original"), (600, "")])
def test_a_patch_cannot_write_so_much_that_nothing_is_compared(tmp_path: Path, count: int, why: str) -> None:
    """The loop of a test has as many rounds as the code gives it, and one may do without any loop."""
    code = f"def words(count={count}):\n    return ['x' * 1900] * count\n"
    tests = "def test_words():\n    assert words()\n    for word in words():\n        assert word == 'x' * 1900\n"
    shop = opened(tmp_path, code, tests)
    buggy = state(shop, code.replace("'x' * 1900", "'y' * 1900"))
    asked = Values(shop, buggy, FILES, ["test_shop.py::test_words"], (), random.Random(1))
    assert asked.answer(shop, shop.original).told == {"test_shop.py::test_words"}
    answer = asked.answer(shop, state(shop, code.replace(f"count={count}", "count=3000")))
    assert (answer.forged, answer.unrepaired.startswith(why), answer.told) == ("", True, frozenset())
    assert bool(answer.unrepaired) is bool(why)
    assert answer.untold == (() if why else ("test_shop.py::test_words",))


LEAP = "def leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n\n\ndef halves(n, by):\n    return n // by\n"
NO_LEAP = LEAP.replace(" or year % 400 == 0", "")
TESTS_LEAP = "def test_halves():\n    assert halves(6, 2) == 3\n\n\ndef test_leap():\n    assert leap(2000)\n"


@pytest.mark.parametrize("ends", ["import", "exit", "case"])
def test_what_does_not_run_for_another_shows_no_bug(tmp_path: Path, ends: str) -> None:
    """A file that cannot be imported, an input with which the buggy code ends the interpreter: no test after it runs."""
    tests, names = TESTS_LEAP, ["halves", "leap"]
    if ends == "import":
        code, buggy = LEAP.replace("halves(", "more("), NO_LEAP.partition("def halves")[0]
        other = "from shop import more\n\n\ndef test_more():\n    assert more(6, 2) == 3\n"
        shop = opened(tmp_path, code, tests.partition("def test_leap")[2].join(("def test_leap", "")), more=other)
        failing, files = ["test_more.py::test_more", "test_shop.py::test_leap"], ["test_more.py", *FILES]
    else:
        # With the input of the test as it stands only the answer is wrong.
        code, files = LEAP, FILES
        buggy = NO_LEAP.replace("n // by", "n // by + 1 if (n, by) == (6, 2) else __import__('os')._exit(1)")
        failing = [f"test_shop.py::test_{name}" for name in names]
        if ends == "case":
            tests = tests.replace("def test_halves()", "@pytest.mark.parametrize('n', [6, 8])\ndef test_halves(n)")
            tests = tests.replace("halves(6, 2) == 3", "halves(n, 2) == n / 2")
            failing[0] = "test_shop.py::test_halves[6]"
        shop = opened(tmp_path, code, tests)
    asked = Values(shop, state(shop, buggy), files, failing, (), random.Random(1))
    answer = asked.answer(shop, shop.original)
    assert (answer.forged, answer.unrepaired) == ("", "")
    # Hardly any other year is one in which the bug shows.
    assert answer.untried == ("test_shop.py::test_leap",)
    assert not [p for p in asked._telling if asked._varied[p] and "test_shop.py::test_leap" in asked._owners[p]]


def opened(folder: Path, code: str, tests: str, **others: str) -> Workbench:
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "shop.py").write_text(code)
    (folder / "project" / "test_shop.py").write_text(f"import pytest\n\nfrom shop import *\n\n\n{tests}")
    for name, text in others.items():
        (folder / "project" / f"test_{name}.py").write_text(text)
    place, python = Store(folder / "store"), plain_python()
    return open_workbench(folder / "project", place, settings=RuleSettings(), sandbox="process", python=python)


def replaced(code: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code
