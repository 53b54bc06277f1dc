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
    return Values(bench, state(bench, BUGGY), FILES, FAILING, random.Random(1))


@pytest.mark.parametrize("text", [CODE, CODE.replace("net + net * rate // 100", "(net * (100 + rate)) // 100")])
def test_a_repair_gives_the_values_of_the_original(bench: Workbench, values: Values, text: str) -> None:
    answer = values.answer(state(bench, text))
    assert (answer.forged, answer.unrepaired) == ("", "")
    assert answer.compared >= 5


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
    assert "with another argument the values are" in answer.unrepaired


def test_tests_that_compare_nothing_tell_nothing(bench: Workbench) -> None:
    values = Values(bench, state(bench, CODE + "# the same\n"), FILES, FAILING, random.Random(1))
    asked = tuple(sorted({test.partition("[")[0] for test in FAILING}))
    assert values.answer(state(bench, BUGGY)) == Answer(untold=asked)


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
    values = Values(bench, buggy, FILES, tests, random.Random(1))
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
    values = Values(bench, buggy, FILES, ["test_shop.py::test_sleep", "test_shop.py::test_long"], random.Random(1))
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
    asked = Values(loose, changed(wrong), ["test_loose.py"], failing, random.Random(1))
    assert asked.answer(changed(repaired)).forged == ""
    assert asked.answer(changed(wrong)).forged.startswith("in test_loose.py::test_")
