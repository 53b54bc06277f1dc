"""Blind test files write the values they compute, and do not hold the values they expect."""

from __future__ import annotations

import ast
import sys
import types
from typing import Any
from unittest import mock

import pytest

from pytest_ssr.grading.blind.compare import holds
from pytest_ssr.grading.blind.rewrite import Blind, rewrite

HEAD = "import math\nimport re\nimport unittest\nfrom unittest import mock\n\nimport pytest\nfrom shop import price, refuse\n"


class Recorder(types.ModuleType):
    """Collects the values that blind tests write."""

    def __init__(self) -> None:
        super().__init__("ssr_blind_recorder")
        self.lines: list[tuple[Any, ...]] = []

    def record(self, site: int, *values: object) -> None:
        self.lines += [values] if values else []

    def truth(self, site: int, value: object) -> None:
        self.lines.append((bool(value),))

    def both(self, site: int, compare: Any, *values: object) -> None:
        self.lines.append((*values, compare(*values)))

    def choice(self, site: int, *operands: Any) -> None:
        self.lines.append(tuple(operand() for operand in operands))

    def held(self, site: int, call: Any, *values: object) -> None:
        self.lines.append(values)
        call(*values)

    def rejects(self, site: int, make: Any) -> None:
        make()
        self.lines.append(("rejects",))

    def fail(self) -> None:
        raise AssertionError

    def Raising(self, site: int, manager: Any, *pattern: object, kinds: object = None) -> Any:
        self.lines.append(("raises", *pattern))
        return manager


def shop() -> types.ModuleType:
    module = types.ModuleType("shop")
    module.price = lambda net: net * 2  # type: ignore[attr-defined]

    def refuse(n: object) -> None:
        raise ValueError(f"not {n}")

    module.refuse = refuse  # type: ignore[attr-defined]
    return module


def blind(text: str, *, full: bool = False) -> Blind:
    return rewrite((HEAD + text).encode(), own={"shop"}, full=full)


def literals(rewritten: Blind) -> set[object]:
    nodes = list(ast.walk(ast.parse(rewritten.text)))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and not isinstance(n.value, bool)}


def run(rewritten: Blind, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Run the functions and methods of a file whose names begin with `test`, and return the values they write."""
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "ssr_blind_recorder", recorder)
    monkeypatch.setitem(sys.modules, "shop", shop())
    space: dict[str, Any] = {"__name__": "test_shop"}
    exec(compile(rewritten.text, "test_shop.py", "exec"), space)
    for name, value in list(space.items()):
        if name.startswith("test"):
            value()
        elif isinstance(value, type) and value.__module__ == "test_shop":
            for method in (m for m in vars(value) if m.startswith("test")):
                getattr(value(method), method)()
    return recorder.lines


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("assert price(4) == 8777", [(8,)]),
        ("assert 8777 == price(4)", [(8,)]),
        ("want = 8777\n    assert price(4) == want, f'not {want}'", [(8,)]),
        ("found = price(4)\n    want = math.sqrt(8777)\n    assert found < want", [(8,)]),
        ("assert 0 < price(4) <= 8777 and price(5) in (8777, 10)", [(8,), (10,)]),
        ("assert not price(4) == 8777", [(8,)]),
        ("assert price('a').startswith('8777')", [("aa",)]),
        ("assert re.match('8777', price('a'))", [("aa",)]),
        ("assert all(n < 8777 for n in price([1, 2]))", [(1,), (2,), (1,), (2,)]),
        ("assert price(4) == pytest.approx(8777, rel=0.1)", [(8,)]),
        ("for given, want in [(1, 8777), (2, 8777)]:\n        assert price(given) == want", [(2,), (4,)]),
        ("want = {1: 8777}\n    for n, w in want.items():\n        assert price(n) == w", [(2,)]),
        ("with pytest.raises(ValueError, match='8777') as info:\n        refuse(3)", [("raises",)]),
        ("with pytest.raises(ValueError) as info:\n        refuse(3)\n    assert '8777' in str(info.value)", None),
        ("with pytest.raises(ValueError) as info:\n        refuse(3)\n    info.match('8777')", None),
        ("pytest.raises(ValueError, refuse, 3)", [("raises",)]),
        ("call = mock.Mock()\n    call(price(2))\n    call.assert_called_once_with(8777)", [([mock.call(4)],)]),
        ("assert price(4)", [(True,)]),
        ("assert price(4) == 8777 or 8777 < price(5)", [(8,), (10,)]),
        ("assert price(4) == price(5)", [(8, 10, False)]),
        ("a, want = 4, 8777\n    assert price(a) == want", [(8,)]),
    ],
)
def test_only_computed_values_are_written(
    body: str, written: list[tuple[Any, ...]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten = blind(f"\n\ndef test_it():\n    {body}\n")
    assert not {8777, "8777"} & literals(rewritten)
    lines = run(rewritten, monkeypatch)
    assert lines == (written if written is not None else [("raises",), ("not 3",)])


@pytest.mark.parametrize(
    "text",
    [
        "WANT = 8777\n\n\ndef test_it():\n    assert price(4) == WANT\n",
        "CASES = [(4, 8777)]\n\n\ndef test_it():\n    for n, want in CASES:\n        assert price(n) == want\n",
        "def test_it():\n    cases = [(4, 8777)]\n    for n, want in cases:\n        assert price(n) == want\n\n\n"
        "def check_others():\n    cases = [(5, 8777)]\n    for n, want in cases:\n        assert price(n) == want\n",
        "def check(n, want):\n    assert price(n) == want\n\n\ndef test_it():\n    check(4, 8777)\n",
        "def check(n, want=None):\n    assert price(n) == want\n\n\ndef test_it():\n    check(4, want=8777)\n",
        "def wanted(n):\n    return n + 8777\n\n\ndef test_it():\n    assert price(4) == wanted(4)\n",
        "class TestIt(unittest.TestCase):\n    want = 8777\n\n    def test_it(self):\n        self.assertEqual(price(4), self.want)\n",
        "class TestIt(unittest.TestCase):\n    def setUp(self):\n        self.n, self.x = 4, 1\n        self.want = [8777]\n\n"
        "    def test_it(self):\n        self.setUp()\n        self.assertIn(price(self.n), self.want)\n",
        "class TestIt(unittest.TestCase):\n    def test_it(self):\n        '''8777'''\n        self.assertIn(price(4), [8777])  # 8777\n",
    ],
)
def test_code_that_only_feeds_the_expected_side_is_removed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten = blind("\n\n" + text)
    assert b"8777" not in rewritten.text
    assert run(rewritten, monkeypatch) == [(8,)]


def test_rows_fixtures_and_row_ids_are_emptied() -> None:
    text = """

@pytest.fixture
def wanted():
    return 8777


@pytest.mark.parametrize(("n", "want"), [(4, 8777), pytest.param(5, 8777, id="8777")], ids=["8777", "b"])
def test_rows(n, want, wanted):
    assert price(n) == want
    assert price(n) != wanted
"""
    assert b"8777" not in blind(text).text
    assert {4, 5} < literals(blind(text))
    assert 8777 in literals(blind(text, full=True))


@pytest.mark.parametrize(
    "text",
    [
        "def test_it():\n    assert price(8777) == 8777\n",
        "def test_it():\n    x = 8777\n    assert price(x) == x\n",
        "ROWS = [(8777, 1)]\n\n\ndef test_it():\n    for n, want in ROWS:\n        assert price(n) == want\n",
        "def test_it():\n    global rows\n    rows = [(1, 8777)]\n    for n, want in rows:\n        assert price(n) == want\n"
        "    assert price(rows) == 1\n\n\ndef test_others():\n    rows = []\n",
        "def test_it():\n    if price(2) == 8777:\n        return\n    assert price(1) == 2\n",
    ],
)
def test_an_input_is_kept_even_if_it_is_also_expected(text: str) -> None:
    assert 8777 in literals(blind("\n\n" + text))


@pytest.mark.parametrize("body", ["price(n)", "BASE + n", "CALLS.append(n) or n"])
def test_a_helper_that_uses_the_code_is_computed(body: str) -> None:
    text = f"BASE = price(1)\nCALLS = []\nprice(CALLS)\n\n\ndef wanted(n):\n    return {body}\n\n\n"
    assert blind(f"\n\n{text}def test_it():\n    assert price(4) == wanted(4)\n").sites[0].recorded == (True, True)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("rows = [1]\n    price(rows)\n    assert rows == [2]", 1),
        ("found = []\n    found.append(price(1))\n    assert found == [2]", 1),
        ("a = price(1)\n    b = price(2)\n    assert a == b", 2),
        ("found = 5\n    assert found == 5", 2),
    ],
)
def test_a_value_that_the_code_may_have_changed_is_computed(text: str, sides: int) -> None:
    rewritten = blind(f"\n\ndef test_it():\n    {text}\n")
    assert sum(rewritten.sites[0].recorded) == sides


@pytest.mark.parametrize(
    ("before", "sides"),
    [("self.a = [1]\n        price(self.a)", 1), ("self.a = (1,)\n        price(self.a)", 2), ("self.a.b = 1", 1)],
)
def test_an_attribute_that_the_code_may_have_changed_is_computed(before: str, sides: int) -> None:
    text = f"class TestIt:\n    def test_it(self):\n        {before}\n        assert self.a == 2\n"
    assert sum(blind(f"\n\n{text}").sites[0].recorded) == sides


def test_the_full_file_writes_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(blind("\n\ndef test_it():\n    assert price(4) == 8777\n", full=True), monkeypatch) == [(8, 8777)]


@pytest.mark.parametrize(
    ("op", "operands", "held"),
    [
        ("==", [3, 3.0], True),
        ("==", [["l", 1], ["t", 1]], False),
        ("==", [2.001, ["~", 2, 1e-2, None]], True),
        ("==", [2.1, ["~", 2, 1e-2, None]], False),
        ("in", ["a", "bab"], True),
        ("in", [1, ["m", [1, 2]]], True),
        ("not in", [3, ["l", 1, 2]], True),
        ("<", [["l", 1, 2], ["l", 1, 3]], True),
        ("<", [["o", "A"], 3], None),
        ("is", [True, 1], False),
        ("search", ["not 3", "[0-9]"], True),
        ("almost", [1.00000001, 1, None, None], True),
        ("almost", [1.1, 1, None, 0.01], False),
        ("count", [["l", 1, 2], ["l", 2, 1]], True),
    ],
)
def test_assertions_are_evaluated_on_written_values(op: str, operands: list[object], held: bool | None) -> None:
    assert holds((op,), operands) is held


@pytest.mark.parametrize("expected", ["pytest.warns(DeprecationWarning)", "pytest.deprecated_call()"])
def test_an_import_need_not_warn_again(expected: str) -> None:
    """Of several copies of a file in one process, only the first import warns."""
    text = f"import pytest\nwith {expected}:\n    import shop\n\n\ndef test_it():\n    assert shop.total([1]) == 1\n"
    tree = ast.parse(blind(text).text)
    assert not any(isinstance(node, ast.With) for node in tree.body)
    assert any(isinstance(node, ast.Import) and node.names[0].name == "shop" for node in tree.body)
