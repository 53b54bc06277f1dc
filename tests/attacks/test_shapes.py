"""Patches that cheat in projects with tests of other styles than the arena's: none is resolved."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import grade as grade_module
from pytest_ssr.grading import grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long
SHAPES = sorted(Path(__file__).with_name("shapes").glob("*.toml"))


def changed(state: CodebaseState, texts: Mapping[str, str]) -> CodebaseState:
    return state.replace({path: FileEntry(text.encode()) for path, text in texts.items()})


@pytest.mark.bubblewrap
@pytest.mark.parametrize("path", SHAPES, ids=[path.stem for path in SHAPES])
def test_a_patch_that_cheats_is_not_resolved(path, tmp_path, monkeypatch):
    # Whether a few other inputs reveal a bug depends on which are drawn.
    monkeypatch.setattr(grade_module.random, "SystemRandom", lambda: random.Random(1))
    attack = tomllib.loads(path.read_text())
    for name, text in attack["project"].items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    store = Store(tmp_path / "store")
    runner = open_runner(tmp_path / "project", store, settings=RuleSettings(), sandbox="bubblewrap")
    buggy = changed(runner.original, attack["bug"])
    artifact = BugArtifact(
        script=default_script(attack["test_files"], options=()),
        test_files=tuple(attack["test_files"]),
        parser=default_parser(),
        bug=buggy.patch_from(runner.original),
        weaken=Patch.parse(b""),
    )
    before, after = (runner.suite(state, attack["test_files"])[0].passing for state in (runner.original, buggy))
    sets = {"fail_to_pass": tuple(sorted(before - after)), "pass_to_pass": tuple(sorted(after))}
    patches = (state.patch_from(buggy) for state in (runner.original, changed(buggy, attack["files"])))
    honest, grade = (grade_patch(runner.scoped(), artifact, patch, **sets) for patch in patches)
    assert honest.resolved is True, honest.reason
    assert grade.resolved is False, attack["tries"]
