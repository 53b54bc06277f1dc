"""Requirements are read from a repository without running it, and uv builds an environment from them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.datasets import InstanceError
from harness.datasets.environment_specs import recipe_of
from harness.datasets.environments import Environments, _pyenv_python
from harness.datasets.families import read_row
from pytest_ssr.storage.store import Store

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
    recipe = recipe_of(instance, tree(tmp_path, pyproject__toml=PYPROJECT))
    assert recipe.packages == ("attrs>=20",)
    assert recipe.optional == ("hypothesis", "coverage")
    assert (recipe.name, recipe.version) == ("the-shop", "2.1")
    assert recipe.entry_points == "[console_scripts]\nshop = shop:main\n\n[pytest11]\nshop = shop.plugin\n"


def test_a_setup_cfg(instance, tmp_path: Path):
    recipe = recipe_of(instance, tree(tmp_path, setup__cfg=SETUP_CFG))
    assert (recipe.packages, recipe.optional, recipe.name, recipe.version) == (("six>=1",), ("mock",), "old", "3")


def test_a_setup_py_is_read_and_not_run(instance, tmp_path: Path):
    (tmp_path / "proof").touch()
    recipe = recipe_of(instance, tree(tmp_path, setup__py=SETUP_PY))
    assert (recipe.packages, recipe.optional, recipe.name, recipe.version) == (("six",), ("mock",), "older", "1.0")
    assert (tmp_path / "proof").exists()


def test_requirements_files_lose_references(instance, tmp_path: Path):
    text = "-r other.txt\n-e .\n.\ngit+https://x/y\n/etc/passwd\npluggy  # this\n"
    recipe = recipe_of(instance, tree(tmp_path, requirements__txt=text))
    assert recipe.files == (("requirements.txt", "pluggy  # this\n"),)


@pytest.mark.parametrize(
    ("date", "before"),
    [("2023-11-05T10:00:00Z", "2023-12-01"), ("2023-12-31", "2024-01-01"), ("", ""), ("yesterday", "")],
)
def test_later_packages_are_excluded(instance, tmp_path: Path, date: str, before: str):
    assert recipe_of(replace(instance, created_at=date), tmp_path).before == before


def test_invalid_metadata_declares_nothing(instance, tmp_path: Path):
    recipe = recipe_of(instance, tree(tmp_path, pyproject__toml="[", setup__cfg="x", setup__py="("))
    assert (recipe.packages, recipe.optional, recipe.name) == ((), (), "shop")


def test_an_install_config(instance, tmp_path: Path):
    config = {
        "python": "3.9",
        "pre_install": ["apt-get update", "pip install 'wheel<1'"],
        "install": "pip install -e '.[test]' --no-deps && python setup.py build && pip install -r needs.txt",
        "pip_packages": ["pytest-mock", "--evil"],
    }
    tree(tmp_path, pyproject__toml=PYPROJECT, needs__txt="pluggy\n-r more.txt\n")
    recipe = recipe_of(replace(instance, install=config), tmp_path)
    assert recipe.python == "3.9"
    assert recipe.packages == ("attrs>=20", "hypothesis", "pytest-mock", "wheel<1")
    assert recipe.files == (("needs.txt", "pluggy\n"),)
    for path in ("../up.txt", "/etc/passwd", "none.txt"):
        with pytest.raises(InstanceError, match="not a file of the repository"):
            recipe_of(replace(instance, install={"install": f"pip install -r {path}"}), tmp_path)


def test_a_given_interpreter_is_used(instance, tmp_path: Path):
    given = Path("/usr/bin/python3")
    assert Environments(Store(tmp_path / "store"), given).python_of(instance, tmp_path) == given


def test_uv_builds_an_environment_once_with_the_projects_metadata(instance, tmp_path: Path):
    folder = tmp_path / "tree"
    folder.mkdir()
    tree(folder, pyproject__toml=PYPROJECT.replace('"attrs>=20"', '"pluggy"').replace('"hypothesis"', '"iniconfig"'))
    messages: list[str] = []
    environments = Environments(Store(tmp_path / "store"), report=messages.append)
    python = environments.python_of(replace(instance, created_at=""), folder)
    code = "import importlib.metadata as m, pytest; print(m.version('the-shop'), *m.entry_points(group='console_scripts', name='shop'))"
    process = subprocess.run([python, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert process.stdout.startswith("2.1 EntryPoint(name='shop'"), process.stderr
    assert not list(python.parents[1].glob("lib/*/site-packages/shop*"))
    assert list(python.parents[1].glob("lib/*/site-packages/pluggy/__pycache__/_hooks.*")), (
        "bytecode is compiled at installation"
    )
    again = Environments(Store(tmp_path / "store"), report=messages.append)
    assert again.python_of(replace(instance, id="other"), folder) == python
    assert messages == ["acme__shop-1: building its environment"]


def test_a_failed_build_is_reported_and_retried(instance, tmp_path: Path):
    folder = tmp_path / "tree"
    folder.mkdir()
    tree(folder, pyproject__toml='[project]\nname = "x"\nversion = "1"\ndependencies = ["pytest==0.0.1.dev99"]\n')
    environments = Environments(Store(tmp_path / "store"))
    for _ in range(2):
        with pytest.raises(InstanceError, match=r"acme__shop-1: its environment cannot be built: .*--python"):
            environments.python_of(instance, folder)


def test_quotes_protect_the_separators_of_commands(instance, tmp_path: Path):
    command = """pip install 'six; python_version > "3"' && pip install mock & pip install "attrs&&x"; pip install a"""
    packages = recipe_of(replace(instance, install={"install": command}), tmp_path).packages
    assert [p for p in packages if p in ('six; python_version > "3"', "mock", "a", "attrs&&x")] == [
        'six; python_version > "3"',
        "mock",
        "attrs&&x",
        "a",
    ]


def test_unbalanced_quotes_in_a_command_are_an_error_of_the_instance(instance, tmp_path: Path):
    with pytest.raises(InstanceError, match="correct it"):
        recipe_of(replace(instance, install={"install": "pip install 'six"}), tmp_path)


CONDITIONAL = """
setup(
    name="older",
    version="1.0",
    install_requires=["six>=1  # for text"],
    extras_require={
        ':python_version < "3"': ["enum34"],
        'Test:sys_platform == "win32"': ["colorama; python_version > '3'"],
        "other": ["never"],
        "dev:no marker": ["plain"],
    },
)
"""


def test_conditional_extras_of_a_setup_py_keep_their_conditions(instance, tmp_path: Path):
    recipe = recipe_of(instance, tree(tmp_path, setup__py=CONDITIONAL))
    assert recipe.packages == ("six>=1", 'enum34; python_version < "3"')
    assert recipe.optional == ('colorama; python_version > "3" and sys_platform == "win32"', "plain")


def test_names_of_extras_and_of_the_project_are_compared_as_pypi_does(instance, tmp_path: Path):
    text = '[project]\nname = "The.Shop"\n[project.optional-dependencies]\nTests = ["mock", "the_shop[docs]"]\n'
    assert recipe_of(instance, tree(tmp_path, pyproject__toml=text)).optional == ("mock",)
    command = "pip install -e '.[TESTS]' && pip install -e ."
    assert "mock" in recipe_of(replace(instance, install={"install": command}), tmp_path).packages


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("../../up", "1", ("shop", "1")),
        ("the shop", "1", ("shop", "1")),
        ("A-b.c", "1.0rc1", ("A-b.c", "1.0rc1")),
        ("a", "attr: a.b", ("a", "0")),
        ("a", "1-../x", ("a", "0")),
        ("a", "..", ("a", "0")),
    ],
)
def test_a_name_and_a_version_are_valid_parts_of_a_path(
    instance, tmp_path: Path, name: str, version: str, expected: tuple[str, str]
):
    recipe = recipe_of(instance, tree(tmp_path, setup__cfg=f"[metadata]\nname = {name}\nversion = {version}\n"))
    assert (recipe.name, recipe.version) == expected


def test_the_newest_interpreter_of_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for version in ("3.9.9", "3.9.18", "3.9-dev", "3.10.1"):
        (tmp_path / "versions" / version / "bin").mkdir(parents=True)
        (tmp_path / "versions" / version / "bin" / "python").touch()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert _pyenv_python("3.9") == str(tmp_path / "versions/3.9.18/bin/python")
    assert [_pyenv_python(version) for version in ("3.1", "3.11", "../3", "*.*", "3.9.9", "pypy3")] == [""] * 6
