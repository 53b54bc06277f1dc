"""Test the tests that are made from tests of the project."""

from __future__ import annotations

import ast
import datetime
import importlib
import signal
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from suggested_project import campaign_on, suggested

from pytest_ssr.records.suggested_test import NoSuggestion
from pytest_ssr.suggestions.amplification import Sighting, Variant, is_of_this_run
from pytest_ssr.suggestions.expressions import written
from pytest_ssr.suggestions.outcomes import CallOutcome, OutcomeKind
from pytest_ssr.suggestions.test_code import leaves, near, put, test_code, without_observations
from pytest_ssr.suggestions.test_slices import TestFile, test_slice

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
    code = test_code(path, ast.parse(SOURCE), [name])[0]
    return [written(leaf) for leaf in leaves(code.body)]


def test_assertions_become_expressions_and_parameters_assignments() -> None:
    codes = test_code("test_shop.py", ast.parse(SOURCE), ["test_price"])
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
        "@pytest.mark.parametrize('a', [*VALUES])",
        "@pytest.mark.parametrize('a,b', [(1, *VALUES)])",
    ],
)
def test_a_test_whose_parameters_cannot_be_written_is_left_out(decorator: str) -> None:
    source = f"{decorator}\ndef test_a(a):\n    assert f(a)\n"
    assert test_code("test_a.py", ast.parse(source), ["test_a"]) == []


def test_the_turns_of_a_loop_are_observed_one_by_one() -> None:
    source = "def test_a():\n    for a, b in [(1, 2), (3, 4)]:\n        c = f(a)\n        assert c == b\n"
    (code,) = test_code("test_a.py", ast.parse(source), ["test_a"])
    turn = ["a, b = (1, 2)", "c = f(a)", "c", "c", "b"]
    assert [written(leaf) for leaf in leaves(code.body)] == [*turn, "a, b = (3, 4)", *turn[1:]]
    for part in ("        break\n", "    else:\n        pass\n"):
        (code,) = test_code("test_a.py", ast.parse(source + part), ["test_a"])
        assert len(code.body) == 1


def test_literals_are_varied_one_at_a_time() -> None:
    source = b"def test_a():\n    assert f(7, 'ab') == 1\n    with g() as h:\n        assert h(2)\n"
    (code,) = test_code("test_a.py", ast.parse(source), ["test_a"])
    found = [written(other.definition) for other in near(code, [])]
    assert len(set(found)) == len(found) > 10
    assert all(text.count("\n") == 3 for text in found)
    changed = [sum(part not in text for part in ("f(7,", '"ab"', "h(2)")) for text in found]
    assert set(changed) == {1}
    assert written(code.definition).splitlines()[1].strip() == 'f(7, "ab")'


def test_a_statement_is_replaced_where_it_stands() -> None:
    source = b"def test_a():\n    with f() as g:\n        a = 1\n        g(a)\n        g(2)\n    g(3)\n"
    (code,) = test_code("test_a.py", ast.parse(source), ["test_a"])
    leaf = list(leaves(code.body))[1]
    new = ast.parse("new").body
    assert "\n".join(map(written, put(code.body, leaf, new, is_last=True))) == "with f() as g:\n    a = 1\n    new"
    assert written(put(code.body, leaf, new)[1]) == "g(3)"
    kept = without_observations(put(code.body, leaf, new, is_last=True), new)
    assert "\n".join(map(written, kept)) == "with f() as g:\n    a = 1\n    new"


def test_a_file_holds_what_its_test_uses() -> None:
    (code, *_) = test_code("test_shop.py", ast.parse(SOURCE), ["test_price"])
    text = test_slice(TestFile(ast.parse(SOURCE), SOURCE), "", [code.definition], {"import datetime"})
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
    (code,) = test_code("test_shop.py", ast.parse(SOURCE), ["TestBasket::test_fits"])
    text = test_slice(
        TestFile(ast.parse(SOURCE), SOURCE), "TestBasket", [code.with_body([ast.Pass()], "test_more")], ()
    )
    for part in ("size = 2", "def setup_method(self)", "def test_more(self)", "def clean():"):
        assert part in text
    for part in ("unrelated", "test_fits", "test_price"):
        assert part not in text


ODD = """\
import os

import pytest
from . import maker
from shop import *

os.environ["SHOP"] = "1"
numpy = pytest.importorskip("numpy")
from numpy import array

data = 1


class Meta(type):
    pass


class Base(metaclass=Meta):
    def setup_method(self):
        self.thing = self.make(data)

    def test_base(self):
        assert self.thing


class TestThing(Base):
    \"\"\"Things.\"\"\"

    kind = Kind

    def make(self, value):
        # A comment.
        return convert(value)

    def test_thing(self, stock, request):
        assert self.thing == array([1])


class TestOther(maker.Mixin):
    def price(self):
        return 1

    def test_price(self):
        assert self.run()


def convert(value):
    return value


@pytest.fixture(name="stock")
def _stock():
    return 2


def pytest_generate_tests(metafunc):
    pass


def make():
    return 3


if __name__ == "__main__":
    data = pytest.main()
"""


def sliced(source: str, owner: str) -> str:
    file = TestFile.read(source.encode())
    assert file is not None
    node = next(n for n in file.tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
    return test_slice(file, owner, [node.body[-1]], ())


def test_a_file_holds_what_others_call_and_keeps_the_order() -> None:
    text = sliced(ODD, "TestThing")
    compile(text, "test_odd.py", "exec")
    # What a base in the file calls, in a class of tests after it, and what that uses; a fixture by its other name.
    for part in (
        "        # A comment.\n        return convert(value)",
        "def convert",
        "def _stock",
        "data = 1",
        "class Meta",
    ):
        assert part in text
    assert "    kind = Kind" in text
    assert "pytest_generate_tests" in text
    for part in ("test_base", "TestOther", "__main__", "def make()", "Things"):
        assert part not in text
    lines = [line for line in text.splitlines() if line.startswith(("import", "from", "os.", "numpy"))]
    assert lines == [
        "import os",
        "import pytest",
        "from shop import *",
        'os.environ["SHOP"] = "1"',
        'numpy = pytest.importorskip("numpy")',
        "from numpy import array",
    ]
    # Nobody knows what a base of another file calls.
    assert "def price(self)" in sliced(ODD, "TestOther")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_file_is_read_as_python_reads_it(encoding: str, end: str) -> None:
    lines = [f"# coding: {encoding}", "NAME = 'é\x0c'", "class TestA:", "\tdef test_a(self):", "\t\tassert f(NAME)", ""]
    file = TestFile.read(end.join(lines).encode(encoding))
    assert file is not None
    node = file.tree.body[-1]
    assert isinstance(node, ast.ClassDef)
    assert test_slice(file, "TestA", node.body, ()) == (
        "NAME = 'é\x0c'\n\n\nclass TestA:\n    def test_a(self):\n        assert f(NAME)\n"
    )


def observed(body: str) -> list[str]:
    source = f"def test_a():\n{textwrap.indent(body, '    ')}"
    (code,) = test_code("test_a.py", ast.parse(source), ["test_a"])
    compile(written(Variant(code, 0).observed), "test_a.py", "exec")
    return [written(leaf) for leaf in leaves(code.body)]


def test_what_cannot_stand_alone_is_no_observation() -> None:
    assert observed("self.assertEqual(*pair)\nassert len(*pair)\nassert (a := f()) == 1\nassert lambda: 1\n") == [
        "(a := f())"
    ]
    assert observed("self.assertRaisesRegex(E, 'a', f, 1, b=2)\nself.assertRaises(E, msg='a')\n") == [
        "with self.assertRaisesRegex(E):\n    f(1, b=2)"
    ]


@pytest.mark.parametrize(
    "body",
    [
        "assert " + " + ".join(["f()"] * 400),
        "a = [" + "(f(1), 2), " * 1000 + "]",
        f"f({'a' * 30000!r})",
    ],
    ids=["deep", "wide", "long"],
)
def test_a_test_that_is_too_large_to_be_written_is_left_out(body: str) -> None:
    assert test_code("test_a.py", ast.parse(f"def test_a():\n    {body}\n"), ["test_a"]) == []


def test_a_few_of_many_cases_are_taken() -> None:
    rows = ", ".join(map(str, range(3000)))
    decorators = "".join(f"@pytest.mark.parametrize('{name}', [{rows}])\n" for name in "abc")
    assert len(test_code("test_a.py", ast.parse(f"{decorators}def test_a(a, b, c):\n    f(a)\n"), ["test_a"])) == 4
    source = "@pytest.mark.parametrize('a', [1])\nclass TestA:\n    def test_a(self, a):\n        assert f(a)\n"
    assert test_code("test_a.py", ast.parse(source), ["TestA::test_a"]) == []


def test_literals_become_literals_of_some_length() -> None:
    (code,) = test_code("test_a.py", ast.parse("def test_a():\n    f(1e308)\n"), ["test_a"])
    found = [written(other.definition) for other in near(code, [])]
    assert found
    assert not any("inf" in text for text in found)
    (code,) = test_code("test_a.py", ast.parse(f"def test_a():\n    f('{'a' * 1000}')\n"), ["test_a"])
    assert list(near(code, [])) == []


def test_comments_stand_first_whatever_the_head_of_a_test_is() -> None:
    source = "SHAPE = 'def test_a_more('\nasync def test_a(b=lambda: {1: 2}, c=':\\n'):\n    assert await f(SHAPE)\n"
    (code,) = test_code("test_a.py", ast.parse(source), ["test_a"])
    value, other = (CallOutcome(OutcomeKind.VALUE, n) for n in (1, 2))
    text = Sighting(Variant(code, 0), 0, "size", value, other).source(
        TestFile(ast.parse(source), source), ["a -> b", "c -> d"], is_short=True
    )
    assert text.splitlines()[-3:] == [
        "    # notices: a -> b",
        "    # notices: c -> d",
        "    assert (await f(SHAPE)).size == 1",
    ]


@pytest.mark.parametrize(
    ("value", "is_of_this"),
    [
        (datetime.datetime.now(), True),
        (f"since {datetime.date.today()}", True),
        (datetime.date(2001, 2, 3), False),
        (["<class 'test_suggested_0.A'>"], True),
        ("<A object at 0x7f31>", True),
        ("/tmp/pytest-of-me/pytest-0/a", True),
        ("more", False),
    ],
)
def test_what_is_so_only_now_is_not_asserted(value: object, *, is_of_this: bool) -> None:
    assert is_of_this_run(value) is is_of_this


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


@pytest.mark.parametrize(
    ("name", "number"), [("test_a_ssr_40", 40), ("test_a_ssr_40[1]", None), ("test_parent", None), ("test_a_1", None)]
)
def test_only_variants_are_observed(
    name: str, number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for guest in ("call_literals", "call_probe"):
        module = importlib.import_module(f"pytest_ssr.execution.guest.{guest}")
        monkeypatch.setitem(sys.modules, f"ssr_{guest}", module)
    observing = importlib.import_module("pytest_ssr.execution.guest.test_observer")
    with (tmp_path / "seen").open("wb", buffering=0) as file:
        observer = observing.Observer(file.fileno())
        call = observing.Plugin(observer).pytest_runtest_call(SimpleNamespace(name=name))
        handler = signal.getsignal(signal.SIGALRM)
        next(call)
        assert observer.next == number
        observer.see(7, 1)
        assert list(call) == []
        signal.signal(signal.SIGALRM, handler)
    written_lines = (tmp_path / "seen").read_text().splitlines()
    assert written_lines == ([] if number is None else ['[7, "", ["value", "1"]]'])


HOSTILE_CODE = """\
class Box:
    __hash__ = None

    def __init__(self, file, n):
        self.has_room = len(file.read()) > n

    @property
    def missing(self):
        raise KeyError

    @property
    def stopping(self):
        raise SystemExit(3)

    def __eq__(self, other):
        raise RuntimeError

    def __str__(self):
        raise RuntimeError
"""
HOSTILE_TESTS = """\
import io
import os
import signal
import unittest

import pytest

from shop import Box


class Parent:
    def test_parent(self):
        assert self.number


class TestParameters:
    @pytest.fixture(params=[3, 4])
    def number(self, request):
        return request.param

    def test_parameters(self, number):
        assert isinstance(Box(io.StringIO("abc"), number), Box)


class TestBox(unittest.TestCase, Parent):
    number = 3

    def test_box(self):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"[]\\n")
            except OSError:
                pass
        os.chdir("/")
        with self.subTest("box"):
            box = Box(io.StringIO("abc"), self.number)
            self.assertTrue(isinstance(box, Box))
"""


@pytest.mark.long
def test_hostile_objects_and_tests_hide_nothing_of_others(tmp_path: Path) -> None:
    with campaign_on(tmp_path, HOSTILE_CODE, HOSTILE_TESTS) as campaign:
        text = suggested(campaign, "> n", ">= n").test
        assert text.splitlines()[-1].strip() == "assert not box.has_room"
        assert "    def test_box_more(self):" in text
