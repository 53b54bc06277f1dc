"""Rows with a clone in bubblewrap, and a grader for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python
from rows import FIXED, diff, write_project

from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.instance import Instance
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


class Rows:
    """Rows of a small repository: a bug to fix, a function to write, and the bug with tests of unittest."""

    def __init__(self, folder: Path) -> None:
        clones, rows = write_project(folder)
        store = Store(folder / "store")
        environments = Environments(store, plain_python())
        rows.append({**rows[0], **unittest_row(clones / "acme__shop")})
        self.instances: list[Instance] = [read_row(row, "row") for row in rows]
        self.grader = Grader(
            store, Repositories(store, clones), environments, RuleSettings(time_limit_s=60), sandbox="bubblewrap"
        )


def unittest_row(repository: Path) -> dict[str, str]:
    """Return what a row has in place of pytest's tests."""
    methods = ("test_add", "self.assertEqual(add(1, 2), 3)"), ("test_shout", 'self.assertEqual(shout("a"), "A")')
    head = "import unittest\n\nfrom shop import add, shout\n\n\nclass ShopTest(unittest.TestCase):\n"
    text = head + "".join(f"    def {name}(self):\n        {line}\n\n" for name, line in methods)
    failing, passing = (f"{name} (tests.test_old.ShopTest)" for name, _ in methods)
    return {
        "instance_id": "acme__shop-3",
        "patch": diff(repository, {"shop.py": FIXED}),
        "test_patch": diff(repository, {"tests/__init__.py": "", "tests/test_old.py": text}),
        "FAIL_TO_PASS": json.dumps([failing]),
        "PASS_TO_PASS": json.dumps([passing]),
    }


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    project = Rows(tmp_path_factory.mktemp("audited"))
    yield project
    project.grader.close()
