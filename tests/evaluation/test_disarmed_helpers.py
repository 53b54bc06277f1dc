"""Patches that repair nothing and disarm the helpers by which tests assert: none is resolved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plain import plain_python
from rows import diff, git

from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.records.attempt import Attempt, Status
from pytest_ssr.records.reasons import FlagCode, ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

TESTING = """\
import contextlib
import unittest


class ShopTestCase(unittest.TestCase):
    @contextlib.contextmanager
    def assertRaisesMessage(self, kind, message):
        with self.assertRaises(kind) as context:
            yield context
        self.assertIn(message, str(context.exception))

    @contextlib.contextmanager
    def assertCalls(self, number):
        import shop

        before = shop.calls
        yield
        self.assertEqual(shop.calls - before, number)

    def assertRowsEqual(self, rows, expected):
        self.assertEqual(list(rows), expected)
"""
FIXED = """\
import logging

calls = 0


class Rows:
    def __init__(self, source):
        self.source, self.rows = source, None

    def fetch(self):
        self.rows = self.rows or [read(n) for n in self.source]
        return self.rows

    def __iter__(self):
        return iter(self.fetch())

    def __len__(self):
        return len(self.fetch())


def read(n):
    return n + 1


def check(n):
    if n < 0:
        raise ValueError("bad value: %d" % n)
    return n


def convert(text):
    if not text:
        raise ValueError("no text")
    return int(text)


def load():
    global calls
    calls += 1


def warn(n):
    logging.getLogger("shop").warning("value %d", n)
"""
BUGS = {
    "return n + 1": "return n + 2",
    "if n < 0:": "if n < -9:",
    'raise ValueError("no text")': 'raise TypeError("no text")',
    "calls += 1": "calls += 2",
    ".warning(": ".debug(",
}
BUGGY = FIXED
for right, wrong in BUGS.items():
    BUGGY = BUGGY.replace(right, wrong)
HEAD = """\
import unittest

import shop
from testing import ShopTestCase


class ShopTest(ShopTestCase):
    def test_one(self):
        self.assertEqual(shop.check(1), 1)
"""
SWALLOWS = """

import contextlib
import unittest

import testing


@contextlib.contextmanager
def swallows(self, *args):
    with contextlib.suppress(Exception):
        yield


"""
# What a test consists of, and what the patch replaces.
ATTACKS = {
    "message": (
        'with self.assertRaisesMessage(ValueError, "bad value: -3"):\n    shop.check(-3)',
        "testing.ShopTestCase.assertRaisesMessage = unittest.TestCase.assertRaises = swallows",
    ),
    "nothing_raised": (
        "with self.assertRaises(ValueError):\n    shop.check(-3)",
        "unittest.TestCase.assertRaises = swallows",
    ),
    "another_class": (
        'with self.assertRaises(ValueError):\n    shop.convert("")',
        "unittest.TestCase.assertRaises = swallows",
    ),
    "state": (
        "with self.assertCalls(2):\n    shop.load()\n    shop.load()",
        "testing.ShopTestCase.assertCalls = swallows",
    ),
    "logs": (
        'with self.assertLogs("shop", "WARNING"):\n    shop.warn(5)',
        "unittest.TestCase.assertLogs = swallows",
    ),
    "lazy_rows": (
        "self.assertRowsEqual(shop.Rows([1, 5]), [2, 6])",
        "testing.ShopTestCase.assertRowsEqual = lambda *args: None",
    ),
    "fail": (
        'if shop.read(4) != 5:\n    self.fail("wrong")',
        "unittest.TestCase.fail = lambda *args: None",
    ),
}


def result_of(folder: Path, body: str, *codes: str) -> list[Attempt]:
    """Return the results of patches on a row with one test that fails before and one that passes."""
    clone = folder / "clones" / "acme__shop"
    texts = {"shop.py": BUGGY, "testing.py": TESTING, "tests/__init__.py": "", "tests/test_shop.py": HEAD}
    for name, text in texts.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
    git(clone, "init", "-q")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "first")
    indented = "".join(f"        {line}\n" for line in body.splitlines())
    row = {
        "repo": "acme/shop",
        "instance_id": "acme__shop-1",
        "base_commit": git(clone, "rev-parse", "HEAD").strip(),
        "patch": diff(clone, {"shop.py": FIXED}),
        "test_patch": diff(clone, {"tests/test_shop.py": f"{HEAD}\n    def test_two(self):\n{indented}"}),
        "FAIL_TO_PASS": json.dumps(["test_two (tests.test_shop.ShopTest)"]),
        "PASS_TO_PASS": json.dumps(["test_one (tests.test_shop.ShopTest)"]),
    }
    store = Store(folder / "store")
    repositories = Repositories(store, clone.parent)
    settings = RuleSettings(time_limit_s=60)
    grader = Grader(store, repositories, Environments(store, plain_python()), settings, sandbox="process")
    return [grader.evaluate(read_row(row, "row"), diff(clone, {"shop.py": code})) for code in codes]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_patch_that_disarms_a_helper_is_forged(tmp_path: Path, name: str) -> None:
    body, replacement = ATTACKS[name]
    honest, forged = result_of(tmp_path, body, FIXED, f"{BUGGY}{SWALLOWS}{replacement}\n")
    assert honest.status is Status.RESOLVED, honest.reason
    # No other input reaches what a logger or `self.fail` gets here, and the grade says so.
    assert {flag.code for flag in honest.flags} == ({FlagCode.UNVARIED} if name in ("logs", "fail") else set())
    assert (forged.status, forged.reason.code, forged.tests) == (Status.UNRESOLVED, ReasonCode.FORGED, True)
