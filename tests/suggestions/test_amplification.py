"""Test the tests that are made from tests of the project."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from suggested_project import campaign_on, suggested

from pytest_ssr.records.suggested_test import NoSuggestion
from pytest_ssr.suggestions.expressions import written
from pytest_ssr.suggestions.test_code import leaves, near, put, test_code, without_observations
from pytest_ssr.suggestions.test_slices import test_slice

SOURCE = '''\
"""Tests."""

from __future__ import annotations

import os
import sys
from shop import Basket, price, unused

import pytest

pytestmark = pytest.mark.filterwarnings("default")
LIMIT = 3
OTHER = 4


@pytest.fixture
def basket(limit):
    return Basket(limit)


@pytest.fixture
def limit():
    return LIMIT


@pytest.fixture(autouse=True)
def clean():
    os.environ.pop("SHOP", None)


def helper():
    return OTHER


@pytest.mark.parametrize(("amount", "rate"), [(1, 2), pytest.param(3, 4, id="b"), (5, "x")])
@pytest.mark.slow
def test_price(amount, rate, basket):
    """Say what it does."""
    found = price(amount, rate)
    basket.add(found)
    with basket.opened() as content:
        assert content == [found] and not content.closed
    with pytest.raises(ValueError):
        price(-1)
    assert len(basket.items) == 1


class TestBasket:
    size = 2

    def setup_method(self):
        self.basket = Basket(self.size)

    def unrelated(self):
        return sys.path

    def test_fits(self):
        assert self.basket.fits(1)
        self.assertRaises(TypeError, self.basket.fits, 1, by=2)
        self.assertEqual(self.basket.limit, 2)
'''


def statements(path: str, name: str) -> list[str]:
    code = test_code(path, SOURCE.encode(), [name])[0]
    return [written(leaf) for leaf in leaves(code.body)]


def test_assertions_become_expressions_and_parameters_assignments() -> None:
    codes = test_code("test_shop.py", SOURCE.encode(), ["test_price"])
    assert [written(code.body[0]) for code in codes] == ["amount = 1", "amount = 3", "amount = 5"]
    assert [argument.arg for argument in codes[0].definition.args.args] == ["basket"]
    assert [ast.unparse(d) for d in codes[0].definition.decorator_list] == ["pytest.mark.slow"]
    assert statements("test_shop.py", "test_price") == [
        "amount = 1",
        "rate = 2",
        "found = price(amount, rate)",
        "found",
        "basket.add(found)",
        "basket",
        "content",
        "[found]",
        "content.closed",
        "with pytest.raises(ValueError):\n    price(-1)",
        "basket.items",
    ]
    assert statements("test_shop.py", "TestBasket::test_fits") == [
        "self.basket.fits(1)",
        "with self.assertRaises(TypeError):\n    self.basket.fits(1, by=2)",
        "self.basket.limit",
    ]


@pytest.mark.parametrize(
    "decorator",
    [
        "@pytest.mark.parametrize('a', VALUES)",
        "@pytest.mark.parametrize(NAMES, [1])",
        "@pytest.mark.parametrize('a', [1], indirect=True)",
        "@given(integers())",
    ],
)
def test_a_test_whose_parameters_cannot_be_written_is_left_out(decorator: str) -> None:
    source = f"{decorator}\ndef test_a(a):\n    assert f(a)\n"
    assert test_code("test_a.py", source.encode(), ["test_a"]) == []


def test_literals_are_varied_one_at_a_time() -> None:
    source = b"def test_a():\n    assert f(7, 'ab') == 1\n    with g() as h:\n        assert h(2)\n"
    (code,) = test_code("test_a.py", source, ["test_a"])
    found = [written(other.definition) for other in near(code, [])]
    assert len(set(found)) == len(found) > 10
    assert all(text.count("\n") == 3 for text in found)
    changed = [sum(part not in text for part in ("f(7,", '"ab"', "h(2)")) for text in found]
    assert set(changed) == {1}
    assert written(code.definition).splitlines()[1].strip() == 'f(7, "ab")'


def test_a_statement_is_replaced_where_it_stands() -> None:
    source = b"def test_a():\n    with f() as g:\n        a = 1\n        g(a)\n        g(2)\n    g(3)\n"
    (code,) = test_code("test_a.py", source, ["test_a"])
    leaf = list(leaves(code.body))[1]
    new = ast.parse("new").body
    assert "\n".join(map(written, put(code.body, leaf, new, is_last=True))) == "with f() as g:\n    a = 1\n    new"
    assert written(put(code.body, leaf, new)[1]) == "g(3)"
    kept = without_observations(put(code.body, leaf, new, is_last=True), new)
    assert "\n".join(map(written, kept)) == "with f() as g:\n    a = 1\n    new"


def test_a_file_holds_what_its_test_uses() -> None:
    (code, *_) = test_code("test_shop.py", SOURCE.encode(), ["test_price"])
    text = test_slice(ast.parse(SOURCE), SOURCE, "", [code.definition], {"import datetime"})
    assert text.startswith(
        "from __future__ import annotations\nimport datetime\nimport os\nfrom shop import Basket, price\n"
    )
    for part in (
        "pytestmark",
        "LIMIT = 3",
        "def basket(limit):",
        "def limit():",
        "def clean():",
        "def test_price(basket):",
    ):
        assert part in text
    for part in ("OTHER", "helper", "sys", "unused", "TestBasket", "Tests."):
        assert part not in text
    (code,) = test_code("test_shop.py", SOURCE.encode(), ["TestBasket::test_fits"])
    text = test_slice(ast.parse(SOURCE), SOURCE, "TestBasket", [code.with_body([ast.Pass()], "test_more")], ())
    for part in ("size = 2", "def setup_method(self)", "def test_more(self)", "def clean():"):
        assert part in text
    for part in ("unrelated", "test_fits", "test_price"):
        assert part not in text


CODE = """\
class Reader:
    def __init__(self, file):
        self.lines = file.read().splitlines()

    def count(self, least):
        return sum(len(line) > least for line in self.lines)

    def rest(self, first):
        if first > len(self.lines):
            raise IndexError(first)
        return ReaderView(self.lines[first:])


class ReaderView:
    def __init__(self, lines):
        self.size = len(lines)
"""
TESTS = """\
import io
import unittest

import pytest

from shop import Reader


@pytest.fixture
def reader(tmp_path):
    path = tmp_path / "lines"
    path.write_text("abc\\nde\\n\\n")
    with path.open() as file:
        return Reader(file)


@pytest.mark.parametrize("least", [0, 1])
def test_count(reader, least):
    assert reader.count(least) == 2


class TestReader(unittest.TestCase):
    def setUp(self):
        self.reader = Reader(io.StringIO("abc"))

    def test_rest(self):
        view = self.reader.rest(0)
        self.assertTrue(view)
        with self.assertRaises(IndexError):
            self.reader.rest(3)
"""


@pytest.mark.long
def test_tests_with_other_inputs_or_more_assertions_notice_a_change(tmp_path: Path) -> None:
    with campaign_on(tmp_path, CODE, TESTS) as campaign:
        count = suggested(campaign, "> least", ">= least").test
        assert count.splitlines()[-1].strip().startswith("assert reader.count(least) == ")
        assert "def test_count_more(reader):\n    # notices: " in count
        assert "class TestReader" not in count
        view = suggested(campaign, "[first:]", "[first + 1:]").test
        assert view.endswith("        view = self.reader.rest(0)\n        assert view.size == 1\n")
        raises = suggested(campaign, "first > len", "first > 1 + len")
        assert "    with pytest.raises(IndexError):\n" in raises.test
        assert "import pytest\n" in raises.test
        equal = suggested(
            campaign, "return ReaderView(self.lines[first:])", "return ReaderView(self.lines[first:None])"
        )
        assert equal.reason is NoSuggestion.NO_LITERAL_INPUTS
