"""The family tables: which entry a version takes, and what a row gets from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from harness.datasets.environment_specs import recipe_of
from harness.datasets.families import read_row
from harness.datasets.family_table import PUBLISHED_BEFORE, FamilyEntry, family_entries, family_entry
from harness.datasets.test_runners import choose_runner, files_of_tests
from pytest_ssr.execution.test_runners import PYTEST_ADDOPTS, RUNNERS

UNITTEST_IDS = ("test_a (shop.tests.Shop)",)


@pytest.fixture
def instance(row):
    return read_row(row, "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with the test file that the row's ids name."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_shop.py").touch()
    return tmp_path


@pytest.mark.parametrize("repo", family_entries())
def test_entries_are_complete_and_in_order(repo: str):
    entries = family_entries()[repo]
    assert repo == repo.lower()
    starts = [Version(entry.since) for entry in entries]
    assert starts == sorted(set(starts))
    for entry in entries:
        assert entry.command.runner in RUNNERS
        assert not entry.python or Version(entry.python) >= Version("3.5")
        assert all(Requirement(package) for package in entry.packages)


def test_all_of_swe_bench_and_swe_gym_are_there():
    assert len(family_entries()) == 19 + 11


@pytest.mark.parametrize(
    ("version", "since", "python"),
    [
        ("2.2", "1.7", "3.5"),
        ("3.0", "3.0", "3.6"),
        ("3.2", "3.0", "3.6"),
        ("4.0", "4.0", "3.8"),
        ("6.1", "5.0", "3.11"),
        ("1.2", "1.4", "3.5"),
        ("", "5.0", "3.11"),
        ("main", "5.0", "3.11"),
    ],
)
def test_a_version_takes_the_entry_that_it_has_reached(version: str, since: str, python: str):
    entry = family_entry("django/django", version)
    assert entry is not None
    assert (entry.since, entry.python, entry.command.runner) == (since, python, "django")


def test_versions_are_compared_as_versions_and_names_in_any_case():
    assert family_entry("astropy/astropy", "v5.3") == family_entry("astropy/astropy", "5.3")
    assert family_entry("Project-MONAI/MONAI", "0.105") is not None
    assert family_entry("acme/shop", "1.0") is None


def test_an_entry_takes_over_what_it_does_not_name():
    first, second = family_entries()["matplotlib/matplotlib"][2:4]
    assert first.requirements
    assert not second.requirements
    assert FamilyEntry("1").command.runner == "pytest"


def test_the_table_chooses_the_runner(instance, tmp_path: Path):
    rows = replace(instance, repo="sympy/sympy", version="1.7", fail_to_pass=("test_a",), pass_to_pass=())
    runner = choose_runner(rows, tmp_path)
    assert runner.name == "sympy"
    assert dict(runner.environment)["PYTHONWARNINGS"] == "ignore::UserWarning,ignore::SyntaxWarning"


def test_the_command_of_a_row_precedes_the_table(instance, tree: Path):
    command = {"test_cmd": ["pytest -rA -W error", "echo done"]}
    runner = choose_runner(replace(instance, repo="sympy/sympy", version="1.7", install=command), tree)
    assert runner.name == "pytest"
    assert dict(runner.environment) == {PYTEST_ADDOPTS: "-W error"}


def test_a_command_that_starts_no_known_runner_decides_nothing(instance, tree: Path):
    runner = choose_runner(replace(instance, install={"test_cmd": "make test"}), tree)
    assert (runner.name, runner.environment) == ("pytest", ())


def test_ids_of_other_runners_are_not_run_with_pytest(instance, tmp_path: Path):
    other = replace(instance, repo="psf/requests", fail_to_pass=UNITTEST_IDS, pass_to_pass=())
    assert choose_runner(other, tmp_path).name == "unittest"


def test_node_ids_name_the_files_for_every_runner(instance, tree: Path):
    assert files_of_tests(instance, RUNNERS["django"], tree) == ["tests/test_shop.py"]


def test_a_recipe_has_the_python_and_the_packages_of_the_table(instance, tmp_path: Path):
    (tmp_path / "tests/requirements").mkdir(parents=True)
    (tmp_path / "tests/requirements/py3.txt").write_text("-r base.txt\njinja2>=2.9\n")
    recipe = recipe_of(replace(instance, repo="django/django", version="4.2", created_at="2022-01-02"), tmp_path)
    assert (recipe.python, recipe.pinned, recipe.optional) == ("3.9", ("setuptools",), ("jinja2>=2.9",))
    assert recipe.before == PUBLISHED_BEFORE
    recipe = recipe_of(replace(instance, repo="sympy/sympy", version="1.14", created_at="2025-01-02"), tmp_path)
    assert (recipe.pinned, recipe.before) == (("setuptools", "mpmath==1.3.0"), "2025-02-01")


def test_a_python_that_uv_does_not_support_is_replaced(instance, tmp_path: Path):
    assert recipe_of(replace(instance, repo="django/django", version="1.11"), tmp_path).python == "3.6"


def test_an_install_config_precedes_the_table(instance, tmp_path: Path):
    recipe = recipe_of(replace(instance, repo="django/django", install={"python": "3.12"}), tmp_path)
    assert (recipe.python, recipe.pinned, recipe.before) == ("3.12", (), "")


def _line(repo: str, entries: tuple[FamilyEntry, ...]) -> str:
    """Return the line of a repository in the documentation."""
    first: dict[str, str] = {}
    for entry in entries:
        if entry.python:
            first.setdefault(entry.python, entry.since)
    pythons = ", ".join(f"{python} ({since})" for python, since in first.items())
    last = entries[-1].command
    runner = f"pytest, `tox.ini` ({last.tox})" if last.tox else last.runner
    return f"| {repo} | {pythons or 'that of `ssr`'} | {runner} |"


def test_the_documentation_lists_every_repository():
    text = (Path(__file__).parents[2] / "docs/evaluation.md").read_text()
    lines = [_line(repo, entries) for repo, entries in family_entries().items()]
    assert "\n".join(lines) in text
