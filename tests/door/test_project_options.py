"""The options of a project's own configuration, in every form that pytest reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.records.test_run import RunStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

TESTS = "import m\n\n\ndef test_a():\n    assert m.X\n\n\ndef test_b():\n    assert m.X\n"
PASSING = {"checks/check_m.py::test_a", "checks/check_m.py::test_b"}


def runner_on(folder: Path, files: dict[str, str]) -> Runner:
    project = folder / "p"
    for name, text in {"m.py": "X = 1\n", "checks/check_m.py": TESTS, **files}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    # Our own interpreter has pytest-xdist.
    python = Path(sys.executable)
    return open_runner(project, Store(folder / "store"), settings=RuleSettings(), sandbox="process", python=python)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["-n=2"], ()),
        (["-n 2"], ()),
        (["-n2"], ()),
        (["-n", "2"], ()),
        (["-nauto", "--dist=loadgroup"], ()),
        (["--numprocesses=logical", "--maxprocesses", "2"], ()),
        (["-xvs"], ("-v", "-s")),
        (["-n=2", "-p no:legacypath", "--strict-markers", "-rfEX"], ("-p no:legacypath", "--strict-markers", "-rfEX")),
        (["--maxfail", "1", "-q"], ("-q",)),
        (["-p", "xdist", "-n0", "-m", "not slow"], ("-m", "not slow")),
        (["--durations", "5", "--durations-min=1.5", "--tb=short"], ("--tb=short",)),
        (["--lf", "--nf", "--sw"], ()),
        (["--junit-xml=out.xml", "--import-mode=importlib"], ("--import-mode=importlib",)),
        (["--cov", "m", "--cov-report", "term-missing:skip-covered", "--cov-fail-under=90"], ()),
        (["--reruns", "3", "--randomly-seed=7"], ()),
        (["-k", "not missing", "-W", "ignore:x"], ("-k", "not missing", "-W", "ignore:x")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("file", ["pytest.toml", "pyproject.toml"])
def test_options_in_toml_are_read_as_pytest_reads_them(
    tmp_path: Path, options: list[str], kept: tuple[str, ...], file: str
) -> None:
    table = "[pytest]" if file == "pytest.toml" else "[tool.pytest]"
    markers = 'markers = ["slow"]\n'
    text = f'{table}\naddopts = {json.dumps(options)}\n{markers}python_files = ["check_*.py"]\npythonpath = ["."]\n'
    runner = runner_on(tmp_path, {file: text})
    run, _ = runner.suite(runner.original)
    assert not run.fault
    assert set(run.passing) == PASSING
    assert run.addopts == kept


@pytest.mark.parametrize("file", ["pytest.ini", "tox.ini", "setup.cfg"])
def test_options_in_ini_files_are_read_as_pytest_reads_them(tmp_path: Path, file: str) -> None:
    section = "tool:pytest" if file == "setup.cfg" else "pytest"
    text = (
        f"[{section}]\npython_files = check_*.py\npythonpath = .\n"
        "addopts =\n    -n=2 --dist loadscope\n    -v --color=no\n    checks\n"
    )
    runner = runner_on(tmp_path, {file: text})
    run, _ = runner.suite(runner.original)
    assert set(run.passing) == PASSING
    assert run.addopts == ("-v", "--color=no", "checks")


def test_paths_after_two_dashes_are_kept(tmp_path: Path) -> None:
    ini = "[pytest]\npython_files = check_*.py\npythonpath = .\naddopts = -ra -- checks/check_m.py\n"
    runner = runner_on(tmp_path, {"pytest.ini": ini})
    run, _ = runner.suite(runner.original)
    assert set(run.passing) == PASSING
    assert run.addopts == ("-ra", "checks/check_m.py")


def test_what_pytest_refuses_is_named(tmp_path: Path) -> None:
    runner = runner_on(tmp_path, {"pytest.ini": "[pytest]\naddopts = -q --no-such-option=30\n"})
    run, _ = runner.suite(runner.original)
    assert run.status is RunStatus.USAGE_ERROR
    assert "unrecognized arguments: --no-such-option=30" in run.reason


def test_options_of_the_projects_own_conftest_stay(tmp_path: Path) -> None:
    conftest = (
        "def pytest_addoption(parser):\n    parser.addoption('--database')\n"
        "    parser.addoption('--slow', action='store_true')\n"
    )
    ini = "[pytest]\npython_files = check_*.py\npythonpath = .\naddopts = --database lite --slow -n 2\n"
    runner = runner_on(tmp_path, {"conftest.py": conftest, "pytest.ini": ini})
    run, _ = runner.suite(runner.original)
    assert set(run.passing) == PASSING
    assert run.addopts == ("--database", "lite", "--slow")
