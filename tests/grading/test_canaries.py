"""Which tests are asked again under other names, and what their answers are worth."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from pytest_ssr.execution import workbench
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.canaries import Canaries
from pytest_ssr.opening import open_workbench
from pytest_ssr.outcomes import RunStatus, SuiteRun
from pytest_ssr.patch import FileEntry
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store

COUNT = 60
CODE = """\
class Money:
    def __init__(self, amount):
        self.amount = amount

    def __eq__(self, other):
        return isinstance(other, Money) and self.amount == other.amount

    __hash__ = None


def price(net):
    return net * 7


def doubled(money):
    return Money(money.amount * 2)
"""
TESTS = "from shop import Money, doubled, price\n\n\ndef test_doubled():\n    assert doubled(Money(2)) == Money(4)\n"
TESTS += "".join(f"\n\ndef test_price_{n}():\n    assert price({n}) == {n * 7}\n" for n in range(COUNT))
IDS = [f"test_shop.py::test_price_{n}" for n in range(COUNT)]
FAILING, OTHERS = [*IDS[:40], "test_shop.py::test_doubled"], IDS[40:]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    root = tmp_path_factory.mktemp("canaries")
    (root / "project").mkdir()
    (root / "project" / "shop.py").write_text(CODE)
    (root / "project" / "test_shop.py").write_text(TESTS)
    place, python = Store(root / "store"), plain_python()
    return open_workbench(root / "project", place, settings=RuleSettings(), sandbox="process", python=python)


def canaries(bench: Workbench, *, every: bool = False) -> Canaries:
    return Canaries(bench, ["test_shop.py"], FAILING, OTHERS, random.Random(0), every=every)


@pytest.mark.parametrize("wrong", [3, 55])
def test_each_test_is_asked_where_that_takes_no_time(bench: Workbench, wrong: int) -> None:
    """A patch may forge any one of them, by name and without a line that is suspicious."""
    text = CODE.replace("net * 7", f"net * 7 if net != {wrong} else 8")
    opinion = canaries(bench).opinion(bench.original.replace({"shop.py": FileEntry(text.encode())}), ())
    assert "a test under another name, does not pass" in opinion.failed
    assert canaries(bench).opinion(bench.original, [*FAILING, *OTHERS]).failed == ""


def test_those_that_there_is_no_time_for_are_told(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ssr.grading.canaries._COPIES", 2)
    monkeypatch.setattr("pytest_ssr.grading.canaries._ROOM_S", 0.0)
    # Far more than a test takes on a busy machine: all count the same.
    monkeypatch.setattr("pytest_ssr.grading.canaries._LEAST_S", 0.2)
    asked = canaries(bench).opinion(bench.original, [*FAILING, *OTHERS])
    assert len(asked.unasked) >= len(FAILING) // 4
    assert asked.left_out == tuple(sorted(OTHERS))
    whole = canaries(bench, every=True).opinion(bench.original, [*FAILING, *OTHERS])
    assert (whole.unasked, whole.left_out) == ((), ())


def test_an_object_that_is_equal_to_all_of_its_kind_is_doubted(bench: Workbench) -> None:
    text = CODE.replace(" and self.amount == other.amount", "").replace("amount * 2", "amount - 2")
    opinion = canaries(bench).opinion(bench.original.replace({"shop.py": FileEntry(text.encode())}), ())
    (doubt,) = opinion.doubts.values()
    assert "which was added for this grade and must fail, passed" in doubt
    assert canaries(bench).opinion(bench.original, ()).doubts == {}


HOLDS = """\
def describe(n):
    return f"{n} is negative" if n < 0 else f"{n} is positive"


def score(n):
    return n / 10
"""
HOLD_TESTS = """\
from holds import describe, score


def test_words():
    assert "negative" in describe(-3)


def test_score():
    assert 0.4 < score(5) < 0.6
"""
CHEATS = {
    "test_words": "class Text(str):\n    def __contains__(self, other):\n        return True\n\n\n"
    'def describe(n):\n    return Text(f"{n} is positive")\n',
    "test_score": "class Number(float):\n    __lt__ = __gt__ = lambda self, other: True\n\n\n"
    "def score(n):\n    return Number(n / 100)\n",
}


def test_an_object_that_holds_everything_is_doubted(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "holds.py").write_text(HOLDS)
    (tmp_path / "project" / "test_holds.py").write_text(HOLD_TESTS)
    place, python = Store(tmp_path / "s"), plain_python()
    bench = open_workbench(tmp_path / "project", place, settings=RuleSettings(), sandbox="process", python=python)
    ids = [f"test_holds.py::{name}" for name in CHEATS]
    asked = Canaries(bench, ["test_holds.py"], ids, (), random.Random(0))
    assert asked.opinion(bench.original, ids).doubts == {}
    for name, code in CHEATS.items():
        state = bench.original.replace({"holds.py": FileEntry((HOLDS + "\n\n" + code).encode())})
        assert [*asked.opinion(state, ids).doubts] == [f"test_holds.py::{name}"]


def test_what_a_repair_keeps_of_one_test_is_not_held_against_its_twin(tmp_path: Path) -> None:
    code = "def load(key):\n    return len(key)\n\n\ndef size(key):\n    return load(key) + 1\n"
    tests = "import shop\n\n\ndef test_once(monkeypatch):\n    calls = []\n"
    tests += "    monkeypatch.setattr(shop, 'load', lambda key: calls.append(key) or 4)\n"
    tests += "    assert shop.size('x') == 5\n    assert calls == ['x']\n"
    shop = opened(tmp_path, code, tests)
    ids = ["test_shop.py::test_once"]
    cached = code.replace("def size", "import functools\n\n\n@functools.cache\ndef size")
    asked = Canaries(shop, ["test_shop.py"], ids, (), random.Random(0))
    opinion = asked.opinion(shop.original.replace({"shop.py": FileEntry(cached.encode())}), ids)
    assert (opinion.failed, opinion.forged, opinion.apart, opinion.certain) == ("", "", tuple(ids), False)
    by_name = "import os\n\n" + code.replace("+ 1", "+ ('::test_once ' in os.environ['PYTEST_CURRENT_TEST'])")
    opinion = asked.opinion(shop.original.replace({"shop.py": FileEntry(by_name.encode())}), ids)
    assert "a test under another name, does not pass" in opinion.failed


KINDS = ["str", "bytes", "int", "float", "list", "tuple", "dict", "set"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_equal_to_all_of_its_kind_is_seen_where_tests_compute_what_they_expect(
    tmp_path: Path, kind: str
) -> None:
    values = dict(zip(KINDS, ["'ab'", "b'ab'", "12", "1.5", "[1, 2]", "(1, 2)", "{1: 2}", "{1, 2}"], strict=True))
    code = "def there(v):\n    return [v]\n\n\ndef back(v):\n    return v[0]\n"
    test = f"from shop import *\n\n\ndef test_back():\n    value = {values[kind]}\n    assert back(there(value)) == value\n"
    fake = f"class Any:\n    def __eq__(self, other):\n        return isinstance(other, {kind})\n\n\n"
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shop.py").write_text(code)
    (tmp_path / "project" / "test_shop.py").write_text(test)
    place, python = Store(tmp_path / "store"), plain_python()
    bench = open_workbench(tmp_path / "project", place, settings=RuleSettings(), sandbox="process", python=python)
    forged = bench.original.replace({"shop.py": FileEntry((fake + code.replace("v[0]", "Any()")).encode())})
    asked = Canaries(bench, ["test_shop.py"], ["test_shop.py::test_back"], (), random.Random(0))
    assert list(asked.opinion(forged, ()).doubts) == ["test_shop.py::test_back"]
    assert not asked.opinion(bench.original, ()).doubts


def test_a_twin_that_does_not_end_is_not_planted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a test that counts until a value, one that awaits another value may count for ever."""
    monkeypatch.setattr(workbench, "FLOOR_S", 2.0)
    code = "def wait(n):\n    while n != 4:\n        pass\n    return n\n"
    tests = "from shop import wait\n\n\ndef test_wait():\n    assert wait(4) == wait(4)\n"
    shop = opened(tmp_path, code, tests)
    ids = ["test_shop.py::test_wait"]
    suites: list[SuiteRun] = []
    suite = shop.suite

    def kept(*arguments: Any, **options: Any) -> tuple[SuiteRun, bool]:
        run, made = suite(*arguments, **options)
        suites.append(run)
        return run, made

    monkeypatch.setattr(shop, "suite", kept)
    for expected in (2, 0):
        suites.clear()
        opinion = Canaries(shop, ["test_shop.py"], ids, (), random.Random(0), every=True).opinion(shop.original, ids)
        late = [run.seconds for run in suites if run.status is RunStatus.TIMED_OUT]
        assert len(late) == expected
        assert all(seconds < 60 for seconds in late)
        # The second time no value is left to be changed that may be.
        assert (opinion.failed, opinion.unasked, opinion.endless, opinion.certain) == ("", (), tuple(ids), True)


def test_one_value_with_which_a_test_does_not_end_spares_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench, "FLOOR_S", 2.0)
    code = "def wait(n):\n    while n != 4:\n        pass\n\n\ndef above(n):\n    return n + 1\n"
    tests = "from shop import above, wait\n\n\ndef test_above():\n    wait(4)\n    assert above(1) > 1\n"
    shop = opened(tmp_path, code, tests)
    holds = "\n\nclass Above(int):\n    def __gt__(self, other):\n        return True\n"
    fake = shop.original.replace({"shop.py": FileEntry((code.replace("n + 1", "Above(n)") + holds).encode(), 0o100644)})
    ids = ["test_shop.py::test_above"]
    for _ in range(3):
        asked = Canaries(shop, ["test_shop.py"], ids, (), random.Random(0), every=True)
        opinion = asked.opinion(fake, ids)
        assert opinion.endless == ()
        assert list(opinion.doubts) == ids


def opened(folder: Path, code: str, tests: str) -> Workbench:
    (folder / "project").mkdir()
    (folder / "project" / "shop.py").write_text(code)
    (folder / "project" / "test_shop.py").write_text(tests)
    place, python = Store(folder / "store"), plain_python()
    return open_workbench(folder / "project", place, settings=RuleSettings(), sandbox="process", python=python)
