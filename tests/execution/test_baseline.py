"""What a change of the tree does to a baseline that is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign import Campaign
from pytest_ssr.opening import open_campaign
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store

FILES = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "README.md": "Adds.\n",
    "docs/read.md": "Read by a test.\n",
    "docs/printed.md": "Printed by a process that a test starts.\n",
    "test_calc.py": """\
import pathlib
import subprocess
import sys

import calc


def test_add():
    assert calc.add(1, 2) == 3


def test_document():
    assert "Read" in pathlib.Path("docs/read.md").read_text()


def test_process():
    code = "print(open('docs/printed.md').read())"
    assert "Printed" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("baseline")
    (root / "project" / "docs").mkdir(parents=True)
    return root / "project"


def runs(project: Path) -> tuple[int, frozenset[str]]:
    store = Store(project.parent / "store")
    campaign: Campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=0)
    campaign.close()
    return campaign.bench.runs_made, campaign.baseline.stable


def lay_out(project: Path) -> None:
    for name, old in FILES.items():
        (project / name).unlink(missing_ok=True)
        (project / name).write_text(old)
    (project / "more.md").unlink(missing_ok=True)
    runs(project)
    assert runs(project)[0] == 0


@pytest.mark.parametrize(
    ("path", "text", "expected", "failing"),
    [
        ("README.md", "Adds numbers.\n", 1, None),
        ("calc.py", "def add(a, b):\n    return b + a\n", 3, None),
        ("docs/read.md", "Read by one test.\n", 3, None),
        ("docs/printed.md", "No more.\n", 4, "test_calc.py::test_process"),
        ("more.md", "A file that was not there.\n", 3, None),
    ],
)
def test_what_no_test_can_see_leaves_the_baseline(
    project: Path, path: str, text: str, expected: int, failing: str | None
) -> None:
    lay_out(project)
    (project / path).write_text(text)
    made, stable = runs(project)
    assert made == expected
    assert ("test_calc.py::test_process" not in stable) == (failing is not None)


@pytest.mark.parametrize(
    "change", [lambda path: path.chmod(0o755), lambda path: (path.unlink(), path.symlink_to("calc.py"))]
)
def test_a_document_that_becomes_a_program_or_a_link_may_be_seen(
    project: Path, change: Callable[[Path], object]
) -> None:
    lay_out(project)
    change(project / "README.md")
    assert runs(project)[0] == 3
