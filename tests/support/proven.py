"""Provide a small project with a validated bug, made once; used by tests of solvers and self-play."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks.validator import Validation
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import Verdicts

FILE = "tests/test_calc.py"
TEST_ADD = "def test_add():\n    assert add(1, 2) == 3\n"


@dataclass
class Proven:
    project: Path
    store: Store
    runner: Runner
    artifact: BugArtifact
    verdict: Verdict
    source: str


def make(project: Path, store: Store, changes: Mapping[str, str], weaker: Mapping[str, str]) -> Proven:
    """Inject a bug and weaken the tests, both by replacing strings."""
    runner = open_runner(project, store, settings=RuleSettings())
    original = CodebaseState(runner.snapshot)
    text = (project / "calc.py").read_text()
    buggy, tests = _replaced(text, changes), _replaced((project / FILE).read_text(), weaker)
    bug = original.replace({"calc.py": FileEntry(buggy.encode())}).patch_from(original)
    weaken = original.replace({FILE: FileEntry(tests.encode())}).patch_from(original)
    artifact = BugArtifact(default_script([FILE], options=()), (FILE,), default_parser(), bug, weaken)
    verdict = Validation(artifact, runner.scoped()).verdict()
    assert verdict.valid, verdict.rejection
    Verdicts(store, runner).put(verdict)
    store.put_artifact(verdict.artifact_id, artifact)
    return Proven(project, store, runner, artifact, verdict, text)


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
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def proven(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Proven:
    store = Store(tmp_path_factory.mktemp("store") / "store")
    return make(project, store, {"return a + b": "return a - b"}, {TEST_ADD: ""})
