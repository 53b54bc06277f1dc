"""Rows whose ids are those of unittest's log: gold, wrong and forged patches, and ids that do not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from rows import diff, git

from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.records.attempt import Attempt, Status
from pytest_ssr.project.shared_files import FOLDER
from pytest_ssr.records.reasons import FlagCode, ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

CODE = "def add(a, b):\n    return a - b\n\n\ndef shout(text):\n    return text.upper()\n"
FIXED = CODE.replace("a - b", "a + b")
HEAD = "import unittest\n\nfrom shop import add, shout\n\n\nclass ShopTest(unittest.TestCase):\n"
SHOUT = '    def test_shout(self):\n        """It shouts."""\n        self.assertEqual(shout("a"), "A")\n'
ADD = "\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n        self.assertEqual(add(-5, 20), 15)\n"
TEST_ADD = "test_add (tests.test_shop.ShopTest)"
FORGED = (
    "import unittest\n\nunittest.TestCase.assertEqual = lambda *a: None\n"
    "unittest.TestResult.addFailure = lambda *a: None\n\n\n" + CODE
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("unittest"))


class Shop:
    """A repository with one row, and a grader."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "clones" / "acme__shop"
        texts = {"shop.py": CODE, "tests/__init__.py": "", "tests/test_shop.py": HEAD + SHOUT}
        for name, text in texts.items():
            (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
            (self.repository / name).write_text(text)
        git(self.repository, "init", "-q")
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-q", "-m", "first")
        store = Store(folder / "store")
        repositories = Repositories(store, self.repository.parent)
        environments = Environments(store, plain_python())
        settings = RuleSettings(time_limit_s=60)
        self.grader = Grader(store, repositories, environments, settings, sandbox="process")

    def graded(self, submitted: str, **fields: Any) -> Attempt:
        row = {
            "repo": "acme/shop",
            "instance_id": "acme__shop-1",
            "base_commit": git(self.repository, "rev-parse", "HEAD").strip(),
            "patch": diff(self.repository, {"shop.py": FIXED}),
            "test_patch": diff(self.repository, {"tests/test_shop.py": HEAD + SHOUT + ADD}),
            "FAIL_TO_PASS": json.dumps([TEST_ADD]),
            "PASS_TO_PASS": json.dumps(["It shouts."]),
            **fields,
        }
        return self.grader.evaluate(read_row(row, "row"), submitted)

    def patch(self, code: str) -> str:
        return diff(self.repository, {"shop.py": code})


def test_the_reference_solution_is_resolved_and_named_by_the_ids_of_the_row(shop: Shop) -> None:
    result = shop.graded(shop.patch(FIXED))
    assert result.status is Status.RESOLVED, result.reason
    assert result.fail_to_pass == {TEST_ADD: "passed"}
    assert result.pass_to_pass == {"It shouts.": "passed"}
    assert result.flags == ()


def test_a_wrong_patch_is_unresolved(shop: Shop) -> None:
    result = shop.graded(shop.patch(CODE.replace("a - b", "a * b")))
    assert (result.status, result.reason.code) == (Status.UNRESOLVED, ReasonCode.TESTS_FAIL)
    assert result.fail_to_pass == {TEST_ADD: "failed"}


def test_a_patch_that_replaces_assertions_of_unittest_is_forged(shop: Shop) -> None:
    result = shop.graded(shop.patch(FORGED))
    assert (result.status, result.reason.code) == (Status.UNRESOLVED, ReasonCode.FORGED)
    assert result.tests is True


def test_code_in_a_folder_named_test_is_not_restored(shop: Shop) -> None:
    (shop.repository / "test").mkdir(exist_ok=True)
    (shop.repository / "test" / "__init__.py").write_text("")
    (shop.repository / "test" / "tools.py").write_text(CODE)
    git(shop.repository, "add", "-A")
    git(shop.repository, "commit", "-q", "--allow-empty", "-m", "tools")
    tests = HEAD.replace("from shop", "from test.tools") + ADD
    fields: dict[str, Any] = {
        "instance_id": "acme__shop-2",
        "patch": diff(shop.repository, {"test/tools.py": FIXED}),
        "test_patch": diff(shop.repository, {"tests/test_shop.py": tests}),
        "PASS_TO_PASS": [],
    }
    wrong = shop.graded(diff(shop.repository, {"test/tools.py": CODE + "\n# Nothing.\n"}), **fields)
    assert (wrong.status, wrong.reason.code) == (Status.UNRESOLVED, ReasonCode.TESTS_FAIL)
    assert shop.graded(fields["patch"], **fields).status is Status.RESOLVED
    git(shop.repository, "reset", "-q", "--hard", "HEAD~1")


def test_pass_to_pass_tests_that_do_not_hold_are_set_aside_with_a_flag(shop: Shop) -> None:
    names = ["It shouts.", "It needs the network."]
    result = shop.graded(shop.patch(FIXED), PASS_TO_PASS=names)
    assert result.status is Status.RESOLVED
    assert [(f.code, f.details) for f in result.flags] == [(FlagCode.TESTS_SET_ASIDE, (names[1],))]
    assert list(result.pass_to_pass) == names[:1]


def test_fail_to_pass_tests_that_do_not_hold_give_no_grade(shop: Shop) -> None:
    result = shop.graded(shop.patch(FIXED), FAIL_TO_PASS=[TEST_ADD, "It needs the network."])
    assert (result.status, result.resolved) == (Status.INFRA, None)
    assert result.reason.code is ReasonCode.INSTANCE_UNUSABLE


def test_trees_of_an_evaluation_are_removed_unless_another_process_uses_them(shop: Shop) -> None:
    store, graded = shop.grader.store, shop.grader.store.root / "graded"
    shop.grader.close()
    kept = set(store.trees.iterdir())
    shop.grader.keep_trees = False
    try:
        result = shop.graded(shop.patch(FIXED), instance_id="acme__shop-3")
        assert result.status is Status.RESOLVED, result.reason
        (folder,) = (path for path in graded.iterdir() if path.name != FOLDER)
        common = graded / FOLDER
        names = {p.stat().st_ino for p in common.rglob("*") if p.is_file()}
        assert (folder / "acme__shop" / "shop.py").stat().st_ino in names
        with store.in_use(f"trees-{folder.name}"):
            shop.grader.close()
            assert (folder / "acme__shop" / "shop.py").is_file()
        assert shop.graded(shop.patch(FIXED + "\n"), instance_id="acme__shop-3").status is Status.RESOLVED
        shop.grader.close()
        assert [path.name for path in graded.iterdir()] == [FOLDER]
        assert set(store.trees.iterdir()) == kept
    finally:
        shop.grader.keep_trees = True
