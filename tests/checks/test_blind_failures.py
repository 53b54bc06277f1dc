"""Run the failing tests of handmade artifacts blind, including tests that need fixtures or table rows."""

from __future__ import annotations

import random

import pytest

from pytest_ssr.checks.blind_failures import BlindFailures, blind_failures

BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
FILES = ["tests/test_rows.py"]
ROWS = """\
import unittest

import pytest
from pkg.adding import add, double


@pytest.fixture
def two():
    return 2


@pytest.mark.parametrize(("a", "b", "both"), [(1, 2, 3), pytest.param(2, 2, 4, id="same")])
@pytest.mark.parametrize("more", [0, 5])
def test_rows(a, b, both, more):
    assert add(a + more, b) == both + more


def test_fixture(two):
    assert double(two) == 4


def test_captured(two, capfd):
    print(double(two))
    assert capfd.readouterr().out == "4\\n"


class TestMethods:
    def setup_method(self):
        self.one = 1

    def test_method(self, tmp_path):
        assert add(self.one, 1) == 2
        assert tmp_path.is_dir()


class TestUnit(unittest.TestCase):
    def setUp(self):
        self.three = 3

    def test_unit(self):
        self.assertEqual(add(self.three, 1), 4)


@pytest.mark.parametrize("a", range(9))
def test_nothing(a):
    assert add(a, 0) == a
"""
FAILING = frozenset(
    f"tests/test_rows.py::{name}"
    for name in (
        *("test_rows[0-1-2-3]", "test_rows[0-same]", "test_rows[5-1-2-3]", "test_rows[5-same]"),
        *("test_fixture", "test_captured", "TestMethods::test_method", "TestUnit::test_unit"),
    )
)
UNDER_PYTEST = (
    "import faulthandler\n\n\ndef add(a, b):\n    return a - b if faulthandler.is_enabled() else a + b\n\n\n"
    "def double(a):\n    return add(a, a)\n"
)
BY_ITS_TEST = (
    "import pathlib\n\nHERE = pathlib.Path(__file__).parent.parent / 'tests'\n\n\ndef add(a, b):\n"
    "    return a - b if 'out == ' in (HERE / 'test_rows.py').read_text() else a + b\n\n\n"
    "def double(a):\n    return add(a, a)\n"
)


@pytest.fixture(scope="module")
def rows(open_builder):
    return open_builder({"tests/test_rows.py": ROWS})


def run_blind(builder, bug):
    """Run the tests of `ROWS` that fail with a bug blind."""
    buggy = builder.runner.original.apply(builder.patch(bug))
    return blind_failures(builder.runner.scoped(), buggy, FILES, FAILING, random.Random(1))


@pytest.mark.long
def test_an_honest_artifact_with_fixtures_and_tables_is_valid(rows, texts, without):
    weak = without(without(texts["tests/test_add.py"], "test_add"), "test_double")
    both = {"tests/test_add.py": weak, "tests/test_rows.py": "def test_more():\n    pass\n"}
    artifact = rows.artifact(BUG, both, files=("tests/test_add.py", "tests/test_rows.py"))
    verdict = rows.judge(artifact)
    assert verdict.valid, verdict.rejection
    assert set(verdict.fail_to_pass) >= FAILING


def test_all_failing_tests_run_blind_and_none_is_satisfied(rows):
    result = run_blind(rows, BUG)
    assert result == BlindFailures(FAILING, frozenset())
    assert not result.pretended


def test_a_bug_that_shows_only_under_pytest_is_pretended(rows):
    """Blind, only the test that needs a fixture of pytest itself sees the bug."""
    result = run_blind(rows, {"pkg/adding.py": UNDER_PYTEST})
    assert result == BlindFailures(FAILING, FAILING - {"tests/test_rows.py::test_captured"})
    assert result.pretended


def test_a_bug_that_reads_its_test_is_pretended_even_with_a_fixture(rows):
    result = run_blind(rows, {"pkg/adding.py": BY_ITS_TEST})
    assert result == BlindFailures(FAILING, FAILING)
    assert result.pretended


@pytest.mark.parametrize(("satisfied", "pretended"), [(0, False), (1, False), (2, True), (3, True)])
def test_half_of_the_failures_is_enough(satisfied, pretended):
    names = frozenset("abc")
    assert BlindFailures(names, frozenset(sorted(names)[:satisfied])).pretended is pretended
