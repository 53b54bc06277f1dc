"""A small project with a proven bug in it, made once; imported by what tests solvers and self-play."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.execution.own_script import own_parser, own_script
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store
from pytest_ssr.validator import Validation
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import Verdicts

FILE = "tests/test_calc.py"
TEST_ADD = "def test_add():\n    assert add(1, 2) == 3\n"


@dataclass
class Proven:
    project: Path
    store: Store
    bench: Workbench
    artifact: BugArtifact
    verdict: Verdict
    source: str


def make(project: Path, store: Store, changes: Mapping[str, str], weaker: Mapping[str, str]) -> Proven:
    """Put a bug in and weaken the tests, both by replacing texts."""
    bench = open_workbench(project, store, settings=RuleSettings())
    original = CodebaseState(bench.snapshot)
    text = (project / "calc.py").read_text()
    buggy, tests = _replaced(text, changes), _replaced((project / FILE).read_text(), weaker)
    bug = original.replace({"calc.py": FileEntry(buggy.encode())}).patch_from(original)
    weaken = original.replace({FILE: FileEntry(tests.encode())}).patch_from(original)
    artifact = BugArtifact(own_script([FILE], options=()), (FILE,), own_parser(), bug, weaken)
    verdict = Validation(artifact, bench.scoped()).verdict()
    assert verdict.valid, verdict.rejection
    Verdicts(store, bench).put(verdict)
    store.put_artifact(verdict.artifact_id, artifact)
    return Proven(project, store, bench, artifact, verdict, text)


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, calculator: Mapping[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("calc") / "calculator"
    for name, text in calculator.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def proven(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Proven:
    store = Store(tmp_path_factory.mktemp("store") / "store")
    return make(project, store, {"return a + b": "return a - b"}, {TEST_ADD: ""})
