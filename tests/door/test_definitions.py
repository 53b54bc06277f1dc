"""Tests that are defined in another place than the file that pytest collects them from can give artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

SHOP = "def total(values):\n    result = sum(values)\n    return result\n\n\ndef name():\n    return 'shop'\n"
CASE = """\
import unittest

import shop


class TestTotal(unittest.TestCase):
    def test_total(self):
        self.assertEqual(shop.total([1, 2]), 3)

    def test_empty(self):
        self.assertEqual(shop.total([]), 0)
"""
FUNCTION = "import shop\n\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n"
MADE = """\
import shop


def make(values, expected):
    class Made:
        def test_total(self):
            assert shop.total(values) == expected

        def test_name(self):
            assert shop.name() == 'shop'

    return Made


for number in range(3):
    globals()[f"TestMade{number}"] = make([number, 1], number + 1)
"""
BY_DECORATOR = """\
import shop


def both(function):
    def test_inner():
        function(shop.total)

    return test_inner


@both
def test_total(total):
    assert total([1, 2]) == 3
"""
PASSING = "\n\ndef test_passing():\n    assert True\n"
KINDS = {
    "a class that is imported": {"suites.py": CASE, "test_all.py": "from suites import TestTotal" + PASSING},
    "all classes of a module": {"suites.py": CASE, "test_all.py": "from suites import *" + PASSING},
    "under another name": {
        "tests/suites.py": CASE.replace("TestTotal", "Suite"),
        "tests/test_all.py": "from suites import Suite\n\n\nclass TestTotal(Suite):\n    pass" + PASSING,
    },
    "a function that is imported": {"suites.py": FUNCTION, "test_all.py": "from suites import test_total" + PASSING},
    "of a package": {
        "tests/__init__.py": "",
        "tests/__main__.py": "from .suites import TestTotal" + PASSING,
        "tests/suites.py": CASE,
        "pytest.ini": "[pytest]\npython_files = __main__.py\n",
    },
    "a package that lists them": {
        "tests/__init__.py": "",
        "tests/suites/__init__.py": "from .total import TestTotal",
        "tests/suites/total.py": CASE,
        "tests/test_all.py": "from .suites import TestTotal" + PASSING,
    },
    "classes made in a loop": {"test_all.py": MADE + PASSING},
    "classes made in a loop elsewhere": {
        "tests/suites.py": MADE,
        "tests/test_all.py": "from suites import *" + PASSING,
    },
    "a mixin": {
        "tests/mixins.py": CASE.replace("(unittest.TestCase)", "").replace("TestTotal", "Total"),
        "tests/test_all.py": (
            "import unittest\n\nfrom mixins import Total\n\n\nclass TestTotal(Total, unittest.TestCase):\n    pass"
            + PASSING
        ),
    },
    "a mixin of a module": {
        "tests/mixins.py": CASE.replace("(unittest.TestCase)", "").replace("TestTotal", "Total"),
        "tests/test_all.py": (
            "import unittest\n\nimport mixins\n\n\nclass TestTotal(mixins.Total, unittest.TestCase):\n    pass"
            + PASSING
        ),
    },
    "a decorator that makes the test": {"test_all.py": BY_DECORATOR + PASSING},
    "a file that pytest does not collect": {
        "specs/total.py": FUNCTION,
        "specs/__init__.py": "",
        "test_all.py": "from specs.total import test_total" + PASSING,
        "conftest.py": "import pytest\n\npytest.register_assert_rewrite('specs')\n",
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_bug_that_they_reveal_is_valid(tmp_path: Path, kind: str) -> None:
    project = tmp_path / "p"
    for name, text in {"shop.py": SHOP, **KINDS[kind]}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    settings = RuleSettings(min_passing_tests=1, max_broken_fraction=1)
    store = Store(tmp_path / "store")
    campaign = open_campaign(
        project, store, settings=settings, sandbox="process", python=plain_python(), sources=["shop.py"]
    )
    try:
        attempts = filter(None, map(campaign.attempt, range(12)))
        assert any(attempt.status is CandidateStatus.VALID for attempt in attempts)
    finally:
        campaign.close()
