"""Test trees whose tests lie in a folder that pytest would use as the root."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_campaign, open_runner
from pytest_ssr.checks.validator import validate
from pytest_ssr.execution.script_template import default_script
from pytest_ssr.project.pytest_config import options_of_script, root_options
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

TESTS = "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc\n"


def root_at(configuration: str) -> tuple[str, ...]:
    return "--rootdir=.", "-c", configuration, "--confcutdir=."


NONE = root_at("/dev/null")


def write_project(folder: Path, *paths: str) -> Path:
    for path in ("sub/calc.py", "sub/tests/test_calc.py", *paths):
        path, _, text = path.partition("=")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")
    (folder / "sub/calc.py").write_text("def double(x):\n    return x * 2\n")
    (folder / "sub/tests/test_calc.py").write_text(TESTS)
    return folder


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((), ()),
        (("pytest.ini=[pytest]", "docs/setup.py="), ()),
        (("sub/setup.py=",), NONE),
        (("pyproject.toml=[project]", "sub/tox.ini=[pytest]"), root_at("pyproject.toml")),
        (("setup.cfg=[tool:pytest]", "sub/pyproject.toml="), root_at("setup.cfg")),
        (("setup.cfg=[tool:pytest]", "tox.ini=[tox]\nx = .[pytest]", "sub/setup.py="), root_at("setup.cfg")),
        (("setup.cfg=[tool:pytest]", "pyproject.toml=[tool.pytest-x]", "sub/setup.py="), root_at("setup.cfg")),
        (("pyproject.toml=[tool.pytest.ini_options]", "sub/setup.py="), root_at("pyproject.toml")),
        (("pyproject.toml=[project", "setup.cfg=[tool:pytest]", "sub/setup.py="), root_at("pyproject.toml")),
    ],
)
def test_the_root_is_given_if_a_folder_with_tests_could_be_one(
    tmp_path: Path, paths: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    snapshot = take_snapshot(write_project(tmp_path / "project", *paths), Store(tmp_path / "store").trees)
    assert root_options(snapshot) == expected


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (("sub/tests",), root_at("sub/tests/pytest.ini")),
        (("sub/tests/test_calc.py::test_a",), root_at("sub/tests/pytest.ini")),
        (("./sub/",), root_at("sub/tox.ini")),
        (("sub/tests", "sub/more"), root_at("sub/tox.ini")),
        (("sub/tests", "other"), NONE),
        ((".",), NONE),
    ],
)
def test_the_root_is_that_of_the_selected_tests(
    tmp_path: Path, tests: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    paths = ("sub/tox.ini=[pytest]", "sub/tests/pytest.ini=", "sub/more/test_m.py=", "other/test_o.py=")
    snapshot = take_snapshot(write_project(tmp_path / "project", *paths), Store(tmp_path / "store").trees)
    assert root_options(snapshot, tests) == expected


@pytest.mark.parametrize("options", [root_at("a/b.ini"), root_at("a b/it's.ini"), NONE, ()])
def test_the_root_can_be_read_from_a_script(options: tuple[str, ...]) -> None:
    assert options_of_script(default_script(["test_a.py"], options=[*options, "-q"])) == options


def validate_first_artifact(folder: Path, project: Path, tests: tuple[str, ...] = ()) -> Verdict:
    """Make the first artifact of a project, and validate its five files again in another store."""
    python, settings = plain_python(), RuleSettings()
    campaign = open_campaign(project, Store(folder / "store"), settings=settings, python=python, seed=0, tests=tests)
    try:
        attempt = campaign.attempt(0)
    finally:
        campaign.close()
    assert attempt is not None
    assert attempt.status is CandidateStatus.VALID, attempt.reason
    campaign.take(attempt)
    runner = open_runner(project, Store(folder / "other"), settings=settings, python=python)
    return validate(campaign.store.artifact(attempt.artifact_id), runner)


@pytest.mark.long
def test_bugs_from_tests_below_such_a_folder(tmp_path: Path) -> None:
    project = write_project(tmp_path / "project", "sub/pytest.ini=[pytest]\npythonpath = .", "other/pytest.ini=")
    assert validate_first_artifact(tmp_path, project, ("sub/tests",)).valid


@pytest.mark.long
def test_bugs_from_tests_above_such_a_folder(tmp_path: Path) -> None:
    project = write_project(
        tmp_path / "project", "sub/pytest.ini=[pytest]\naddopts = -k test_b\npythonpath = .", "conftest.py="
    )
    (project / "conftest.py").write_text("import sys\n\nsys.path.insert(0, 'sub')\n")
    verdict = validate_first_artifact(tmp_path, project)
    assert verdict.valid
    assert verdict.fail_to_pass == ("sub/tests/test_calc.py::test_a",)
