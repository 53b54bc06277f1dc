"""Artifacts with evidence only of the tests that the bug can touch: none is accepted that whole runs would reject."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_campaign, open_runner
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.checks.validator import validate
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

CLEANING = """\
CONFIG = {"n": 1}


def get():
    return CONFIG["n"]


def scoped(call):
    old = CONFIG["n"]
    CONFIG["n"] = 5
    result = call()
    CONFIG["n"] = old
    return result
"""
CLEANED = """\
import calc


def test_a():
    assert calc.get() == 1


def test_b():
    assert calc.get() < 2


def test_scoped():
    assert calc.scoped(calc.get) == 5
    assert calc.get() == 1
"""
ASKING = """\
def add(x):
    return x + 1


def ask(read):
    try:
        return read()
    except KeyboardInterrupt:
        return "aborted"
"""
ASKED = """\
import calc


def test_a():
    assert calc.add(1) == 2


def test_b():
    assert calc.add(2) == 3


def test_last():
    def read():
        raise KeyboardInterrupt

    assert calc.ask(read) == "aborted"
"""
PLAIN = "def add(x):\n    return x + 1\n\n\ndef double(x):\n    return x * 2\n"
LOOKING = """\
import gc

import pytest

import calc


@pytest.mark.parametrize("i", range(30))
def test_a(i):
    assert calc.add(i) == i + 1


def test_gc():
    assert gc.get_freeze_count() == 0


def test_b():
    assert calc.double(3) == 6
"""


def run_trial(folder: Path, code: str, tests: str, old: str, new: str) -> tuple[CandidateResult, Trial]:
    project = folder / "project"
    project.mkdir()
    (project / "calc.py").write_text(code)
    (project / "test_calc.py").write_text(tests)
    assert old in code
    python = plain_python()
    campaign = open_campaign(project, Store(folder / "store"), settings=RuleSettings(), python=python, seed=0)
    try:
        changes: dict[str, bytes | None] = {"calc.py": code.replace(old, new).encode()}
        trial = Trial(campaign, 0, Candidate("mutation", "by hand", changes, "calc.py", 1, "calc"))
        attempt = trial.finish()
        assert attempt is not None
        return attempt, trial
    finally:
        campaign.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "tests", "old", "new"),
    [
        (CLEANING, CLEANED, '    CONFIG["n"] = old\n', "    old = CONFIG\n"),
        (ASKING, ASKED, "except KeyboardInterrupt", "except ValueError"),
    ],
)
def test_what_whole_runs_reject_is_rejected(tmp_path: Path, code: str, tests: str, old: str, new: str) -> None:
    attempt, trial = run_trial(tmp_path, code, tests, old, new)
    assert attempt.status is CandidateStatus.REJECTED
    if trial.artifact is not None:
        python = plain_python()
        runner = open_runner(tmp_path / "project", Store(tmp_path / "2"), settings=RuleSettings(), python=python)
        assert not validate(trial.artifact, runner).valid


def test_a_test_that_behaves_differently_in_forks_rejects_nothing(tmp_path: Path) -> None:
    attempt, trial = run_trial(tmp_path, PLAIN, LOOKING, "x * 2", "x * 3")
    assert attempt.status is CandidateStatus.VALID, attempt.reason
    assert trial.validation is not None
    assert trial.validation.verdict().certified == "selected"
