"""Campaigns on projects whose tests do not run with pytest: reach, screening, artifacts, and judging these again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python
from program_projects import CODE_FILE, SCOPES, TREES, program_runner, write_tree

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign, open_runner
from pytest_ssr.checks.validator import Validation
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.script_template import default_script, runner_of_artifact, runner_of_script, script_of
from pytest_ssr.execution.test_runners import DJANGO, PYTEST, SYMPY, UNITTEST, ProgramRunner
from pytest_ssr.grading import grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.fallback import FallbackCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

RECORD = b"# ssr-runner "


def campaign_of(folder: Path, name: str) -> Campaign:
    project = write_tree(folder / "project", TREES[name])
    return open_campaign(
        project,
        Store(folder / "store"),
        settings=RuleSettings(min_passing_tests=1),
        injectors="mutation",
        sandbox="process",
        python=plain_python(),
        test_runner=program_runner(name),
    )


def reached(baseline: Baseline, campaign: Campaign, old: str, new: str) -> set[str]:
    """Return the names of the tests that reach a change of the code."""
    original = campaign.runner.original
    data = (campaign.snapshot.directory / CODE_FILE[campaign.runner.test_runner.name]).read_bytes()
    assert old.encode() in data
    path = CODE_FILE[campaign.runner.test_runner.name]
    state = original.replace({path: FileEntry(data.replace(old.encode(), new.encode()))})
    assert baseline.reach is not None
    tests = baseline.reach.touched_by(state).tests
    assert tests is not None
    return {name.rpartition("::")[2] for name in tests}


@pytest.mark.parametrize("name", ["unittest", "django", "sympy"])
def test_a_bug_is_found_proven_and_graded(tmp_path: Path, name: str) -> None:
    campaign = campaign_of(tmp_path, name)
    try:
        baseline = campaign.baseline
        assert {i.partition("::")[0] for i in baseline.collected} == set(SCOPES[name])
        assert "test_double" in reached(baseline, campaign, "2 * x", "3 * x")
        assert "test_add" not in reached(baseline, campaign, "2 * x", "3 * x")
        results = [r for index in range(6) if (r := campaign.attempt(index)) is not None]
    finally:
        campaign.close()
    assert {r.fallback.code for r in results if r.fallback is not None} == {FallbackCode.OTHER_RUNNER}
    valid = next(r for r in results if r.status is CandidateStatus.VALID)
    _judge_again(tmp_path, campaign.store, valid, program_runner(name))


def _judge_again(folder: Path, store: Store, result: CandidateResult, test_runner: ProgramRunner) -> None:
    """Validate and grade an artifact with nothing but its files and the project."""
    directory = next(d for kind in ("artifacts", "spare") if (d := store.root / kind / result.artifact_id).is_dir())
    assert runner_of_artifact(directory) == test_runner
    artifact = read_artifact(directory)
    runner = open_runner(
        folder / "project",
        Store(folder / "other"),
        settings=RuleSettings(min_passing_tests=1),
        sandbox="process",
        python=plain_python(),
        test_runner=runner_of_script(artifact.script),
    )
    verdict = Validation(artifact, runner.scoped()).verdict()
    assert verdict.valid, verdict.rejection
    recorded = {"fail_to_pass": frozenset(verdict.fail_to_pass), "pass_to_pass": frozenset(verdict.pass_to_pass)}
    assert grade_patch(runner, artifact, artifact.bug.reverse(), **recorded).resolved is True
    assert grade_patch(runner, artifact, Patch.parse(b""), **recorded).resolved is False


def test_what_classes_and_modules_set_up_is_reached_by_all_their_tests(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "unittest")
    try:
        found = reached(campaign.baseline, campaign, "return [x]", "return [x, x]")
        assert found == {"test_add", "test_double", "test_prepared", "test_raises"}
        assert reached(campaign.baseline, campaign, "'unused'", "'changed'") == set()
    finally:
        campaign.close()


@pytest.mark.parametrize(
    "test_runner",
    [
        replace(DJANGO, scope=("tests/a/tests.py",)),
        replace(SYMPY, environment=(("PYTHONWARNINGS", "ignore"),)),
        replace(UNITTEST, program=(*UNITTEST.program, "--buffer")),
    ],
    ids=lambda runner: runner.name,
)
def test_a_script_records_its_test_runner(test_runner: ProgramRunner) -> None:
    assert runner_of_script(script_of(test_runner, ["tests/a/tests.py"], options=())) == test_runner


def test_any_other_script_is_run_by_pytest(tmp_path: Path) -> None:
    assert runner_of_script(default_script(["test_a.py"], options=())) == PYTEST
    assert runner_of_script(b"#!/bin/sh\npython tests/runtests.py\n") == PYTEST
    assert runner_of_artifact(tmp_path) == PYTEST


@pytest.mark.parametrize(
    "facts",
    [
        {"name": "nothing"},
        {"name": "pytest"},
        {"name": "unittest", "arguments": [1]},
        {"name": "unittest", "environment": {"LD_PRELOAD": "x.so"}},
        {"name": "unittest", "environment": {"PYTHONPATH": "x"}},
        ["unittest"],
    ],
    ids=str,
)
def test_a_record_that_cannot_be_used_is_an_error_of_the_artifact(facts: Mapping[str, object]) -> None:
    with pytest.raises(ArtifactError):
        runner_of_script(b"#!/bin/sh\n" + RECORD + json.dumps(facts).encode() + b"\n")


def test_a_record_that_is_no_json_is_an_error_of_the_artifact() -> None:
    with pytest.raises(ArtifactError):
        runner_of_script(b"#!/bin/sh\n" + RECORD + b"{\n")
