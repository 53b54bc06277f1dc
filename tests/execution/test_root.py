"""A tree whose tests lie in a folder that pytest would take for the root."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.attempt import AttemptStatus
from pytest_ssr.execution.own_script import own_script
from pytest_ssr.execution.root import root_of, root_options
from pytest_ssr.opening import open_campaign, open_workbench
from pytest_ssr.settings import RuleSettings
from pytest_ssr.snapshot import take_snapshot
from pytest_ssr.store import Store
from pytest_ssr.validator import validate
from pytest_ssr.verdict import Verdict

TESTS = "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc\n"


def at(configuration: str) -> tuple[str, ...]:
    return "--rootdir=.", "-c", configuration, "--confcutdir=."


NONE = at("/dev/null")


def written(folder: Path, *paths: str) -> Path:
    for path in ("sub/calc.py", "sub/tests/test_calc.py", *paths):
        path, _, text = path.partition("=")
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")
    (folder / "sub/calc.py").write_text("def double(x):\n    return x * 2\n")
    (folder / "sub/tests/test_calc.py").write_text(TESTS)
    return folder


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((), ()),
        (("pytest.ini=[pytest]", "docs/setup.py="), ()),
        (("sub/setup.py=",), NONE),
        (("pyproject.toml=[project]", "sub/tox.ini=[pytest]"), at("pyproject.toml")),
        (("setup.cfg=[tool:pytest]", "sub/pyproject.toml="), at("setup.cfg")),
        (("setup.cfg=[tool:pytest]", "tox.ini=[tox]\nx = .[pytest]", "sub/setup.py="), at("setup.cfg")),
        (("setup.cfg=[tool:pytest]", "pyproject.toml=[tool.pytest-x]", "sub/setup.py="), at("setup.cfg")),
        (("pyproject.toml=[tool.pytest.ini_options]", "sub/setup.py="), at("pyproject.toml")),
        (("pyproject.toml=[project", "setup.cfg=[tool:pytest]", "sub/setup.py="), at("pyproject.toml")),
    ],
)
def test_the_root_is_named_where_a_folder_with_tests_could_be_one(
    tmp_path: Path, paths: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    snapshot = take_snapshot(written(tmp_path / "project", *paths), Store(tmp_path / "store").trees)
    assert root_options(snapshot) == expected


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (("sub/tests",), at("sub/tests/pytest.ini")),
        (("sub/tests/test_calc.py::test_a",), at("sub/tests/pytest.ini")),
        (("./sub/",), at("sub/tox.ini")),
        (("sub/tests", "sub/more"), at("sub/tox.ini")),
        (("sub/tests", "other"), NONE),
        ((".",), NONE),
    ],
)
def test_the_root_is_that_of_the_tests_that_are_wanted(
    tmp_path: Path, tests: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    paths = ("sub/tox.ini=[pytest]", "sub/tests/pytest.ini=", "sub/more/test_m.py=", "other/test_o.py=")
    snapshot = take_snapshot(written(tmp_path / "project", *paths), Store(tmp_path / "store").trees)
    assert root_options(snapshot, tests) == expected


@pytest.mark.parametrize("options", [at("a/b.ini"), at("a b/it's.ini"), NONE, ()])
def test_a_script_of_ours_tells_its_root(options: tuple[str, ...]) -> None:
    assert root_of(own_script(["test_a.py"], options=[*options, "-q"])) == options


def verdict_of_the_first(folder: Path, project: Path, tests: tuple[str, ...] = ()) -> Verdict:
    """Make the first artifact of a project, and judge it again from its five files elsewhere."""
    python, settings = plain_python(), RuleSettings()
    campaign = open_campaign(project, Store(folder / "store"), settings=settings, python=python, seed=0, tests=tests)
    try:
        attempt = campaign.attempt(0)
    finally:
        campaign.close()
    assert attempt is not None
    assert attempt.status is AttemptStatus.VALID, attempt.reason
    bench = open_workbench(project, Store(folder / "other"), settings=settings, python=python)
    return validate(campaign.store.artifact(attempt.artifact_id), bench)


def test_bugs_are_made_from_the_tests_below_such_a_folder(tmp_path: Path) -> None:
    project = written(tmp_path / "project", "sub/pytest.ini=[pytest]\npythonpath = .", "other/pytest.ini=")
    assert verdict_of_the_first(tmp_path, project, ("sub/tests",)).valid


def test_bugs_are_made_above_such_a_folder(tmp_path: Path) -> None:
    project = written(
        tmp_path / "project", "sub/pytest.ini=[pytest]\naddopts = -k test_b\npythonpath = .", "conftest.py="
    )
    (project / "conftest.py").write_text("import sys\n\nsys.path.insert(0, 'sub')\n")
    verdict = verdict_of_the_first(tmp_path, project)
    assert verdict.valid
    assert verdict.fail_to_pass == ("sub/tests/test_calc.py::test_a",)
