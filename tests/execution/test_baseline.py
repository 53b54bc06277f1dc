"""How an edit of the tree affects an existing baseline."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.execution.baseline import Baseline, Verification
from pytest_ssr.execution.baseline_parts import Parts
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

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
    "twice.py": "def double(x):\n    return 2 * x\n",
    "test_double.py": """\
import twice


def test_double():
    assert twice.double(2) == 4


def test_other():
    assert twice.double(0) == 0
""",
    "test_more.py": """\
import twice


def test_one():
    assert twice.double(1) == 2


def test_three():
    assert twice.double(3) == 6
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("baseline")
    (root / "project" / "docs").mkdir(parents=True)
    return root / "project"


def lay_out(project: Path) -> None:
    for name, old in FILES.items():
        (project / name).unlink(missing_ok=True)
        (project / name).write_text(old)
    for name in ("more.md", "conftest.py"):
        (project / name).unlink(missing_ok=True)
    campaign = open_campaign(
        project, Store(project.parent / "store"), settings=RuleSettings(), python=plain_python(), seed=0
    )
    campaign.verifying.result()
    campaign.close()


@dataclass(frozen=True)
class Opened:
    """A campaign on the project as it is now."""

    probed: list[frozenset[str] | None]
    """The tests of each recorded run; None: all."""
    baseline: Baseline
    verification: Verification


def opened(project: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    probed: list[frozenset[str] | None] = []
    probe = Runner.probe

    def record_probe(self: Runner, *arguments: Any, selection: Selection | None = None, **named: Any) -> Any:
        run, log = probe(self, *arguments, selection=selection, **named)
        probed.append(None if selection is None else frozenset(run.results))
        return run, log

    monkeypatch.setattr(Runner, "probe", record_probe)
    store = Store(project.parent / "store")
    campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=0)
    try:
        return Opened(probed, campaign.baseline, campaign.verifying.result())
    finally:
        campaign.close()


ADD, DOCUMENT, PROCESS = (f"test_calc.py::test_{name}" for name in ("add", "document", "process"))
DOUBLE, OTHER = "test_double.py::test_double", "test_double.py::test_other"


@pytest.mark.parametrize(
    ("path", "text", "again"),
    [
        ("README.md", "Adds numbers.\n", {PROCESS}),
        ("calc.py", "def add(a, b):\n    c = b + a\n    return c\n", {ADD, PROCESS}),
        ("docs/read.md", "Read by one test.\n", {DOCUMENT, PROCESS}),
        ("docs/printed.md", "Printed again.\n", {PROCESS}),
        (
            "test_double.py",
            "import twice\n\n\ndef test_new():\n    assert twice\n",
            {"test_double.py::test_new", PROCESS},
        ),
        ("test_double.py", "def test_new():\n    assert True\n", None),
        ("calc.py", "LIMIT = 3\n\n\ndef add(a, b):\n    return a + b\n", None),
        ("more.md", "A file that was not there.\n", None),
        ("conftest.py", "import os\n", None),
    ],
)
def test_after_an_edit_only_the_tests_that_it_concerns_run_again(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str, again: set[str] | None
) -> None:
    lay_out(project)
    assert opened(project, monkeypatch).probed == []
    (project / path).write_text(text)
    campaign = opened(project, monkeypatch)
    assert campaign.probed == [again, again]
    # The updated baseline equals a measurement of the whole suite.
    store = Store(project.parent / "separate store")
    whole = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=0)
    whole.close()
    assert campaign.baseline.collected == whole.baseline.collected
    assert campaign.baseline.stable == whole.baseline.stable
    assert campaign.baseline.reach is not None
    assert whole.baseline.reach is not None
    assert campaign.baseline.reach.spots == whole.baseline.reach.spots
    assert campaign.baseline.reach.opens == whole.baseline.reach.opens
    shutil.rmtree(store.root)


def test_a_test_that_fails_after_an_edit_is_set_aside(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(project)
    (project / "docs/read.md").write_text("Changed.\n")
    assert opened(project, monkeypatch).baseline.set_aside == {DOCUMENT: "failed"}


def test_of_two_that_need_a_baseline_one_measures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("calc.py", "twice.py", "test_double.py"):
        (tmp_path / "project").mkdir(exist_ok=True)
        (tmp_path / "project" / name).write_text(FILES[name])
    probe, measured = Runner.probe, []

    def slow_probe(self: Runner, *arguments: Any, **named: Any) -> Any:
        measured.append(arguments)
        time.sleep(0.5)
        return probe(self, *arguments, **named)

    def measure(_: int) -> Sequence[str]:
        store = Store(tmp_path / "store")
        campaign = open_campaign(tmp_path / "project", store, settings=RuleSettings(), python=plain_python(), seed=0)
        campaign.close()
        return campaign.baseline.collected

    monkeypatch.setattr(Runner, "probe", slow_probe)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(measure, range(2))
    assert first == second == (DOUBLE, OTHER)
    assert len(measured) == 1


@pytest.mark.parametrize(
    "change", [lambda path: path.chmod(0o755), lambda path: (path.unlink(), path.symlink_to("calc.py"))]
)
def test_a_document_that_becomes_a_program_or_a_link_may_be_seen(
    project: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    lay_out(project)
    change(project / "README.md")
    assert opened(project, monkeypatch).probed == [None, None]


MEASURING = """\
import sys
from pathlib import Path

from pytest_ssr.execution import baseline_parts
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

baseline_parts._EVERY_S = 0.2
root, python = map(Path, sys.argv[1:])
open_campaign(root / "project", Store(root / "store"), settings=RuleSettings(), python=python)
"""


@dataclass(frozen=True)
class StoredRecord:
    """A record that is only read."""

    data: dict[str, Any]

    def get(self) -> dict[str, Any]:
        return self.data

    def put(self, data: Mapping[str, Any]) -> None:
        raise AssertionError


@pytest.mark.long
def test_a_measurement_that_was_killed_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "calc.py").write_text(FILES["calc.py"])
    tests = (f"def test_{i}():\n    time.sleep(0.5)\n    assert calc.add({i}, 1) == {i + 1}" for i in range(12))
    text = "import time\nimport calc\n\n\ndef test_wrong():\n    raise ValueError('wrong')\n\n\n" + "\n\n".join(tests)
    (tmp_path / "project" / "test_slow.py").write_text(text)
    process = subprocess.Popen([sys.executable, "-c", MEASURING, str(tmp_path), str(plain_python())])
    records = tmp_path / "store" / "baselines"

    def count_finished() -> int:
        """Return how many finished tests the store holds."""
        data = [json.loads(path.read_text()) for path in records.glob("parts-*")]
        return sum(len(run.results) for each in data for run, _ in Parts(StoredRecord(each)).earlier())

    until = time.monotonic() + 60
    while time.monotonic() < until and count_finished() < 2:
        time.sleep(0.05)
    process.kill()
    process.wait()
    campaign = opened(tmp_path / "project", monkeypatch)
    (again, whole) = campaign.probed
    assert again is not None
    assert 0 < len(again) < 12
    assert whole is None
    assert len(campaign.baseline.stable) == 12
    assert len(campaign.baseline.durations) == 13
    assert campaign.baseline.set_aside == {"test_slow.py::test_wrong": "failed"}
    assert campaign.baseline.messages == {"test_slow.py::test_wrong": "ValueError: wrong"}
    assert campaign.baseline.reach is not None
    (reached,) = campaign.baseline.reach.spots["calc.py"].values()
    assert campaign.baseline.reach.names(reached) == campaign.baseline.stable
    assert not list(records.glob("parts-*"))
