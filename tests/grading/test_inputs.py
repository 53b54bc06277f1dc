"""Which literals of a test are its inputs, and which only say what is expected."""

from __future__ import annotations

import ast

import pytest

from pytest_ssr.grading.asking import asking, inputs_of
from pytest_ssr.weakening.text import Definition

TABLE = """\
@pytest.mark.parametrize(("n", "text"), [(20000, "20.0 kB"), pytest.param(7, "7 B")])
def test_shown(n, text):
    assert shown(n) == text
"""
USED = TABLE.replace("== text", "== text.upper()")


def definition(text: str) -> Definition:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    return node


def body(line: str) -> Definition:
    return definition(f"def test_it(self):\n    {line}\n")


@pytest.mark.parametrize(
    ("line", "inputs"),
    [
        ("assert add(1, 2) == 3", [1, 2]),
        ("self.assertEqual(3, add(1, 2))", [1, 2]),
        ("self.assertEqual(add(1, 2), 3)", [1, 2]),
        ("assert parse(TEXT) == {'name': 'ann', 'age': 3}", []),
        ("assert list(range(30)) == [0, 1, 2]", [30]),
        ("assert grown(3) < 10", [3]),
        ("assert 'x' in words('a', 5)", ["a", 5]),
        ("self.assertAlmostEqual(half(5), 2.5)", [5]),
        ("assert half(5) == approx(2.5)", [5]),
        ("check_order('abc')", ["abc"]),
        ("check_price(price(3), 30)", [3]),
        ("found = price(3); assert found == 30", [3]),
        ("assert shown(20_000, True) == '20 kB'", [20_000]),
    ],
)
def test_what_is_only_expected_is_no_input(line: str, inputs: list[object]) -> None:
    assert [c.value for c in inputs_of(body(line))] == inputs


@pytest.mark.parametrize(("text", "inputs"), [(TABLE, [20000, 7]), (USED, [20000, "20.0 kB", 7, "7 B"])])
def test_a_column_that_is_only_expected_is_none(text: str, inputs: list[object]) -> None:
    assert sorted(map(str, (c.value for c in inputs_of(definition(text))))) == sorted(map(str, inputs))


@pytest.mark.parametrize(
    ("text", "place", "sides"),
    [
        ("def test_it():\n    assert add(1, 2) == date(3)\n", 0, {0}),
        ("def test_it():\n    assert add(1, 2) == date(3)\n", 2, {1}),
        ("def test_it():\n    n = 4\n    m = n + x\n    assert half(m) == ten\n", 0, {0}),
        ("def test_it():\n    ten = Money(4)\n    assert half(m) == ten\n", 0, {1}),
        ("def test_it():\n    case = {'n': 4, 'half': 2}\n    assert half(case['n']) == case['half']\n", 1, set()),
        (USED, 0, {0}),
        (USED, 1, {1}),
    ],
)
def test_what_hangs_on_an_input_is_known(text: str, place: int, sides: set[int]) -> None:
    asked = asking(definition(text), "t", recorder="r", place=place, number=5)
    assert asked.hangs == {1: frozenset(sides)}


@pytest.mark.parametrize(("more", "rows"), [("", 1), (", ids=['a', 'b']", 2)])
def test_only_the_row_that_is_changed_is_asked(more: str, rows: int) -> None:
    text = TABLE.replace("])\ndef", f"]{more})\ndef")
    asked = asking(definition(text), "t", recorder="r", place=1, number=5)
    assert ("20000" in asked.text) == (rows == 2)
    assert "13" in asked.text
