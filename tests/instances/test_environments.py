"""What a repository declares, read without running it, and an environment that uv makes of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.instances import InstanceError
from harness.instances.environments import Environments
from harness.instances.families import read_row
from harness.instances.recipes import recipe_of
from pytest_ssr.store import Store

PYPROJECT = """
[project]
name = "the-shop"
version = "2.1"
dependencies = ["attrs>=20", "-r evil.txt", "--index-url=http://x"]
scripts = {shop = "shop:main"}
[project.optional-dependencies]
test = ["hypothesis", "the-shop[docs]"]
docs = ["sphinx"]
[project.entry-points.pytest11]
shop = "shop.plugin"
[dependency-groups]
dev = ["coverage", {include-group = "other"}]
"""
SETUP_CFG = "[metadata]\nname = old\nversion = 3\n[options]\ninstall_requires =\n    six>=1\n    # not this\n[options.extras_require]\ntesting =\n    mock\n"
SETUP_PY = """
import os
os.remove("proof")
setup(name="older", version=read("x"), install_requires=["six"], extras_require={"test": ["mock"]})
"""


@pytest.fixture
def instance(row):
    return read_row(row, "")


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_pyproject(instance, tmp_path: Path):
    found = recipe_of(instance, tree(tmp_path, pyproject__toml=PYPROJECT))
    assert found.packages == ("attrs>=20",)
    assert found.optional == ("hypothesis", "coverage")
    assert (found.name, found.version) == ("the-shop", "2.1")
    assert found.entry_points == "[console_scripts]\nshop = shop:main\n\n[pytest11]\nshop = shop.plugin\n"


def test_a_setup_cfg(instance, tmp_path: Path):
    found = recipe_of(instance, tree(tmp_path, setup__cfg=SETUP_CFG))
    assert (found.packages, found.optional, found.name, found.version) == (("six>=1",), ("mock",), "old", "3")


def test_a_setup_py_is_read_and_not_run(instance, tmp_path: Path):
    (tmp_path / "proof").touch()
    found = recipe_of(instance, tree(tmp_path, setup__py=SETUP_PY))
    assert (found.packages, found.optional, found.name, found.version) == (("six",), ("mock",), "older", "1.0")
    assert (tmp_path / "proof").exists()


def test_files_of_requirements_without_what_leads_elsewhere(instance, tmp_path: Path):
    text = "-r other.txt\n-e .\n.\ngit+https://x/y\n/etc/passwd\npluggy  # this\n"
    found = recipe_of(instance, tree(tmp_path, requirements__txt=text))
    assert found.files == (("requirements.txt", "pluggy  # this\n"),)


@pytest.mark.parametrize(
    ("date", "before"),
    [("2023-11-05T10:00:00Z", "2023-12-01"), ("2023-12-31", "2024-01-01"), ("", ""), ("yesterday", "")],
)
def test_nothing_is_taken_that_was_published_after_the_month(instance, tmp_path: Path, date: str, before: str):
    assert recipe_of(replace(instance, created_at=date), tmp_path).before == before


def test_what_is_damaged_declares_nothing(instance, tmp_path: Path):
    found = recipe_of(instance, tree(tmp_path, pyproject__toml="[", setup__cfg="x", setup__py="("))
    assert (found.packages, found.optional, found.name) == ((), (), "shop")


def test_an_install_config(instance, tmp_path: Path):
    config = {
        "python": "3.9",
        "pre_install": ["apt-get update", "pip install 'wheel<1'"],
        "install": "pip install -e '.[test]' --no-deps && python setup.py build && pip install -r needs.txt",
        "pip_packages": ["pytest-mock", "--evil"],
    }
    tree(tmp_path, pyproject__toml=PYPROJECT, needs__txt="pluggy\n-r more.txt\n")
    found = recipe_of(replace(instance, install=config), tmp_path)
    assert found.python == "3.9"
    assert found.packages == ("attrs>=20", "hypothesis", "pytest-mock", "wheel<1")
    assert found.files == (("needs.txt", "pluggy\n"),)
    for path in ("../up.txt", "/etc/passwd", "none.txt"):
        with pytest.raises(InstanceError, match="no file of the repository"):
            recipe_of(replace(instance, install={"install": f"pip install -r {path}"}), tmp_path)


def test_the_interpreter_that_is_named_is_taken(instance, tmp_path: Path):
    named = Path("/usr/bin/python3")
    assert Environments(Store(tmp_path / "store"), named).python_of(instance, tmp_path) == named


def test_uv_makes_an_environment_once_and_knows_the_project_without_its_code(instance, tmp_path: Path):
    folder = tmp_path / "tree"
    folder.mkdir()
    tree(folder, pyproject__toml=PYPROJECT.replace('"attrs>=20"', '"pluggy"').replace('"hypothesis"', '"iniconfig"'))
    told: list[str] = []
    environments = Environments(Store(tmp_path / "store"), told=told.append)
    python = environments.python_of(replace(instance, created_at=""), folder)
    code = "import importlib.metadata as m, pytest; print(m.version('the-shop'), *m.entry_points(group='console_scripts', name='shop'))"
    done = subprocess.run([python, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("2.1 EntryPoint(name='shop'"), done.stderr
    assert not list(python.parents[1].glob("lib/*/site-packages/shop*"))
    assert list(python.parents[1].glob("lib/*/site-packages/pluggy/__pycache__/_hooks.*")), "no run has to compile it"
    again = Environments(Store(tmp_path / "store"), told=told.append)
    assert again.python_of(replace(instance, id="other"), folder) == python
    assert told == ["acme__shop-1: building its environment"]


def test_what_cannot_be_installed_is_told_and_made_again(instance, tmp_path: Path):
    folder = tmp_path / "tree"
    folder.mkdir()
    tree(folder, pyproject__toml='[project]\nname = "x"\nversion = "1"\ndependencies = ["pytest==0.0.1.dev99"]\n')
    environments = Environments(Store(tmp_path / "store"))
    for _ in range(2):
        with pytest.raises(InstanceError, match=r"acme__shop-1: its environment cannot be built: .*--python"):
            environments.python_of(instance, folder)
