"""Tests outside the artifact's files, which a repair must not break."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

FILES = {
    "shop/__init__.py": "",
    "shop/sums.py": "def add(a, b):\n    return a + b\n",
    "shop/products.py": "import os\n\n\ndef product(a, b):\n    return a * b\n\n\ndef unused():\n    return 1\n",
    "tests/test_sums.py": "from shop.sums import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "tests/test_products.py": "import os\nfrom shop.products import product\n\n\ndef test_product():\n"
    "    assert product(2, 3) == 6\n\n\ndef test_only_once():\n"
    "    assert 'HOME' in os.environ\n",
}
FILE, FAILING, OTHER = "tests/test_sums.py", "tests/test_sums.py::test_add", "tests/test_products.py::test_product"
REPAIRED = {"shop/sums.py": "def add(a, b):\n    return sum((a, b))\n"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def runner(tmp_path: Path, store: Store) -> Runner:
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return open_runner(tmp_path / "project", store, settings=RuleSettings())


def graded(runner: Runner, store: Store | None, files: dict[str, str]) -> Grade:
    bug = runner.original.replace({"shop/sums.py": FileEntry(b"def add(a, b):\n    return a - b\n", 0o100644)})
    artifact = BugArtifact(
        script=default_script([FILE], options=()),
        test_files=(FILE,),
        parser=default_parser(),
        bug=bug.patch_from(runner.original),
        weaken=Patch.parse(b""),
    )
    repaired = bug.replace({p: FileEntry(text.encode(), 0o100644) for p, text in files.items()})
    baseline = functools.partial(project_baseline, runner, store) if store is not None else None
    patch = repaired.patch_from(bug)
    return grade_patch(runner.scoped(), artifact, patch, fail_to_pass=[FAILING], pass_to_pass=[], baseline=baseline)


@pytest.mark.parametrize(
    "other",
    [
        "def product(a, b):\n    return None\n",
        "raise SystemExit\n",
        FILES["shop/products.py"].replace("import os\n", "import os\nos._exit(0)\n"),
    ],
)
def test_a_repair_that_breaks_tests_of_other_files_is_not_resolved(runner: Runner, store: Store, other: str) -> None:
    grade = graded(runner, store, {**REPAIRED, "shop/products.py": other})
    assert (grade.resolved, grade.tests) == (False, True)
    assert grade.reason.code is ReasonCode.REGRESSION
    assert OTHER in grade.reason.detail


def test_without_a_baseline_the_recorded_tests_decide(runner: Runner) -> None:
    assert graded(runner, None, {**REPAIRED, "shop/products.py": "raise SystemExit\n"}).resolved is True


@pytest.mark.parametrize(
    "other",
    ["def product(a, b):\n    return sum([a] * b)\n", FILES["shop/products.py"].replace("return 1", "return 2")],
)
def test_a_repair_that_changes_other_code_and_breaks_no_test_is_resolved(
    runner: Runner, store: Store, other: str
) -> None:
    grade = graded(runner, store, {**REPAIRED, "shop/products.py": other})
    assert grade.resolved is True, grade.reason
