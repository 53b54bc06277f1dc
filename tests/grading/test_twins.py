"""Twins of tests do what they must on true code, and give away what only pretends."""

from __future__ import annotations

import ast
import random

import pytest

from pytest_ssr.grading.twins import Function, Garden

PATH = "tests/test_all.py"
FILE = '''\
"""Tests."""
import unittest

import pytest


def three():
    return 3


def test_number():
    assert three() == 3


@pytest.mark.parametrize(
    "text",
    ["a", "b"],
)
def test_text(text):
    """A docstring."""
    assert (
        text * 2
        == "a" "a"
        or text == "b"
    )
    assert [text] == [text], "said"  # a comment


class TestMany:
    def test_kinds(self):
        assert {"a": 1} == {"a": 1}
        assert (1, 2) == (1, 2)
        assert {1} == {1}
        assert [] == []
        assert -1 == -three() + 2
        assert f"{three()}" == "3"
        assert b"x" == b"x"
        assert None == None  # noqa: E711
        assert 1.5 == 3 / 2
        assert True == (three() == 3)

    def test_raises(self):
        with pytest.raises(ZeroDivisionError):
            three() / 0

    class TestInner:
        def test_truth(self): assert three()


class TestUnit(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(three(), 3)
        self.assertTrue(three() > 2)
        with self.assertRaises(ValueError):
            int("x")


class TestMore(TestMany):
    pass


def test_nothing_said():
    three()
'''
TESTS = [
    f"{PATH}::{name}"
    for name in (
        "test_number",
        "test_text[a]",
        "test_text[b]",
        "TestMany::test_kinds",
        "TestMany::test_raises",
        "TestMany::TestInner::test_truth",
        "TestUnit::test_equal",
        "TestMore::test_kinds",
        "TestMore::test_raises",
        "test_nothing_said",
    )
]


@pytest.mark.parametrize("seed", range(5))
def test_planted_twins_pass_or_fail_as_they_must(pytester: pytest.Pytester, seed: int) -> None:
    garden = Garden({PATH: FILE.encode()}, TESTS)
    everything = {f: [None, *range(len(sites))] for f, sites in garden.sites.items()}
    planted = garden.plant(everything, random.Random(seed))
    assert len(planted.twins) == sum(len(sites) for sites in everything.values()) == 63
    (pytester.mkdir("tests") / "test_all.py").write_bytes(planted.files[PATH])
    reports = pytester.inline_run("-p", "no:cacheprovider").getreports("pytest_runtest_logreport")
    outcomes = {r.nodeid: r.outcome for r in reports if r.when == "call"}
    assert all(outcomes[name] == "passed" for name in TESTS)
    seen = set()
    for name, outcome in outcomes.items():
        twin = planted.twin_of(name)
        if twin is not None:
            seen.add(name.partition("[")[0])
            assert (outcome == "passed") is (twin.site is None), name
    assert seen >= set(planted.twins)


def test_names_values_and_places_differ_from_time_to_time() -> None:
    garden = Garden({PATH: FILE.encode()}, TESTS)
    wanted = {f: [None, 0] for f in garden.functions}
    files = {garden.plant(wanted, random.Random(seed)).files[PATH] for seed in range(20)}
    assert len(files) == 20
    assert garden.plant(wanted, random.Random(3)) == garden.plant(wanted, random.Random(3))


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("def test_a(): assert 1 == 1\n", 2),
        ("x = 1; y = 2\n\n\ndef test_a():\n    assert 1 == 1", 2),
        ("if True:\n    def test_a():\n\n        assert 1 == 1\n", 2),
        ("def test_a():\r\n    assert 1 == 1\r\n", 2),
        ("\ufeffdef test_a():\n    assert 'é' == 'é'\n", 2),
        ("async def test_a():\n    assert 1 == 1\n", 2),
        ("def test_a(:\n", 0),
        ("", 1),
    ],
)
def test_odd_files_stay_python(text: str, functions: int) -> None:
    tests = [f"{PATH}::test_a"] if "test_a(" in text and functions else []
    garden = Garden({PATH: text.encode()}, tests)
    assert len(garden.functions) == functions
    for seed in range(10):
        wanted = {f: [None, *range(len(sites))] for f, sites in garden.sites.items()}
        for data in garden.plant(wanted, random.Random(seed)).files.values():
            ast.parse(data)


def test_a_test_that_is_not_there_has_no_twin() -> None:
    garden = Garden({PATH: FILE.encode()}, ["tests/test_other.py::test_number", PATH])
    assert garden.functions == [Function(PATH, ())]


BASE = """\
import functools

import pytest


def kept(x):
    return functools.reduce(lambda a, b: a + b, [x])


class Shared:
    @pytest.mark.parametrize("x", [1, 2])
    def test_kept(self, x):
        assert kept(x) == x
        assert kept(3) == 3


class Far(Shared):
    def test_text(self):
        assert str(self) != "a"
"""
CHILDREN = {
    "tests/test_by_name.py": "from {module} import Far as Near\n\n\nclass TestChild(Near):\n    pass\n",
    "tests/test_by_star.py": "from {module} import *\n\n\nclass TestChild(Far):\n    pass\n",
    "tests/test_by_module.py": "import {module} as b\n\n\nclass TestChild(b.Far):\n    pass\n",
    "tests/test_by_both.py": "from {module} import Far\n\n\nclass Mine(Far):\n    pass\n\n\nclass TestChild(Mine):\n    pass\n",
}


@pytest.mark.parametrize("path", sorted(CHILDREN))
@pytest.mark.parametrize(("base", "module"), [("tests/base.py", "base"), ("tests/shared/__init__.py", "shared")])
def test_tests_inherited_from_another_file_have_twins_there(
    pytester: pytest.Pytester, path: str, base: str, module: str
) -> None:
    tests = [f"{path}::TestChild::{name}" for name in ("test_kept[1]", "test_kept[2]", "test_text")]
    child = CHILDREN[path].format(module=module)
    garden = Garden({path: child.encode()}, tests, {base: BASE.encode()}.get)
    everything = {f: [None, *range(len(sites))] for f, sites in garden.sites.items() if f.chain}
    assert len(everything) == 2
    planted = garden.plant(everything, random.Random(1))
    assert set(planted.files) == {base}
    for name, text in {path: child.encode(), **planted.files}.items():
        pytester.path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        pytester.path.joinpath(name).write_bytes(text)
    reports = pytester.inline_run("-p", "no:cacheprovider").getreports("pytest_runtest_logreport")
    outcomes = {r.nodeid: r.outcome for r in reports if r.when == "call"}
    assert all(outcomes[name] == "passed" for name in tests)
    seen = {}
    for name, outcome in outcomes.items():
        twin = planted.twin_of(name)
        if twin is not None:
            seen[name.partition("[")[0]] = twin.site
            assert (outcome == "passed") is (twin.site is None), name
    assert seen.keys() >= planted.twins.keys()
    assert {twin.function.chain[-1] for twin in planted.twins.values()} == {"test_kept", "test_text"}


def test_bases_that_import_one_another_come_to_an_end() -> None:
    files = {"tests/a.py": b"from b import *\n", "tests/b.py": b"from a import *\nclass X(X): pass\n"}
    path = "tests/test_c.py"
    garden = Garden({path: b"from a import X\nclass TestC(X):\n    pass\n"}, [f"{path}::TestC::test_m"], files.get)
    assert [f.chain for f in garden.functions] == [("TestC", "test_m"), ()]


FAR = "class Base1:\n    def test_x(self):\n        assert 1\n\n\nclass A(Base1):\n    pass\n\n\n"
FAR += (
    "class B:\n    def test_x(self):\n        assert 2\n\n\nclass C(Base1):\n    def test_x(self):\n        assert 3\n"
)


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("class TestC(A, B):\n    pass\n", 2),
        ("class TestC(B, A):\n    pass\n", 11),
        ("class TestC(A, C):\n    pass\n", 16),
        ("from typing import Generic\nclass TestC(Generic[int], A[int]):\n    pass\n", 2),
        ("import unittest\nclass TestC(unittest.TestCase, A):\n    pass\n", 2),
        ("class TestC(Elsewhere, A):\n    pass\n", None),
        ("class TestC(made(), A):\n    pass\n", None),
        ("class TestC(A):\n    test_x = B.test_x\n", None),
    ],
)
def test_the_method_that_python_would_run_is_found(head: str, line: int | None) -> None:
    path = "tests/test_c.py"
    text = f"from far import A, B, C\n{head}"
    garden = Garden({path: text.encode()}, [f"{path}::TestC::test_x"], {"tests/far.py": FAR.encode()}.get)
    node = garden.definition(Function(path, ("TestC", "test_x")))
    assert (node.lineno if node is not None else None) == line
