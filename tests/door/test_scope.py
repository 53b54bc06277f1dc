"""Which tests a session uses, and from which root: those that plain pytest would run from the same folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.plugin.arguments import with_joined_values
from pytest_ssr.plugin.options import chosen_sources, chosen_tests
from pytest_ssr.plugin.sources import project_path

pytestmark = pytest.mark.long

FILES = {
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-ra'\nssr_count = 3\n",
    "conftest.py": "",
    "services/api/tests/test_api.py": "def test_a():\n    pass\n",
    "services/web/pyproject.toml": "[project]\nname = 'web'\n",
    "services/web/test_web.py": "def test_w():\n    pass\n",
    "services/own/pytest.ini": "[pytest]\nssr_count = 5\n",
    "services/own/test_own.py": "def test_o():\n    pass\n",
    "libs/common/money.py": "",
    "a b/ü/test_u.py": "def test_u():\n    pass\n",
}


@pytest.fixture
def monorepo(pytester: pytest.Pytester) -> Path:
    for name, text in FILES.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return pytester.path


@pytest.mark.parametrize(
    ("folder", "arguments", "root", "tests"),
    [
        (".", [], ".", []),
        (".", ["."], ".", []),
        ("services/api", [], ".", ["services/api"]),
        ("services/api", ["."], ".", ["services/api"]),
        ("services/api/tests", [], ".", ["services/api/tests"]),
        ("services/api", ["tests/test_api.py::test_a"], ".", ["services/api/tests/test_api.py::test_a"]),
        ("services/api", ["../web"], ".", ["services/web"]),
        # A project file without settings for pytest does not make a root: pytest goes on to the next one above.
        ("services/web", [], ".", ["services/web"]),
        ("services/own", [], "services/own", []),
        (".", ["services/own"], "services/own", []),
        ("services", [], ".", ["services"]),
        ("services", ["api", "web"], ".", ["services/api", "services/web"]),
        ("a b/ü", [], ".", ["a b/ü"]),
    ],
)
def test_the_tests_are_those_of_plain_pytest(
    pytester: pytest.Pytester, monorepo: Path, folder: str, arguments: list[str], root: str, tests: list[str]
) -> None:
    os.chdir(monorepo / folder)
    config = pytester.parseconfig("--ssr-inject", *arguments)
    assert project_path(config) == monorepo / root
    assert chosen_tests(config) == tests


def test_testpaths_count_in_their_own_folder_only(pytester: pytest.Pytester, monorepo: Path) -> None:
    (monorepo / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntestpaths = ['services/web']\n")
    assert chosen_tests(pytester.parseconfig("--ssr-inject")) == []
    os.chdir(monorepo / "services/api")
    assert chosen_tests(pytester.parseconfig("--ssr-inject")) == ["services/api"]


def test_a_project_without_settings_for_pytest_is_found(pytester: pytest.Pytester) -> None:
    (pytester.path / "setup.cfg").write_text("[metadata]\nname = x\n")
    tests = pytester.mkdir("tests")
    os.chdir(tests)
    config = pytester.parseconfig("--ssr-inject")
    assert project_path(config) == pytester.path
    assert chosen_tests(config) == ["tests"]


def test_a_project_without_settings_for_pytest_is_found_from_outside(pytester: pytest.Pytester) -> None:
    project = pytester.mkdir("project")
    (project / "setup.cfg").write_text("[metadata]\nname = x\n")
    for name in ("tests/sub/test_m.py", "tests/test_l.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("def test_a():\n    pass\n")
    config = pytester.parseconfig("--ssr-inject", "project/tests/sub/test_m.py::test_a", "project/tests/test_l.py")
    assert project_path(config) == project
    assert chosen_tests(config) == ["tests/sub/test_m.py::test_a", "tests/test_l.py"]


PATHS = ("store", "json", "python", "html", "sarif", "source", "validate", "solve", "diff")


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("relative", [False, True])
def test_an_existing_path_after_a_space_is_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    path = "there" if relative else str(tmp_path / "there")
    flag = f"--ssr-{name}"
    assert with_joined_values(["--ssr-inject", flag, path, "-q"]) == ["--ssr-inject", f"{flag}={path}", "-q"]
    assert with_joined_values([f"{flag}={path}", "tests"]) is None
    assert with_joined_values([flag, "absent"]) is None
    assert with_joined_values(["--other", path]) is None
    assert with_joined_values(["--ssr-inject", path]) is None
    assert with_joined_values([flag]) is None


def test_options_of_the_variable_are_joined_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-q --ssr-store '{tmp_path}'")
    assert with_joined_values(["tests"]) == ["tests"]
    assert os.environ["PYTEST_ADDOPTS"] == f"-q --ssr-store={tmp_path}"


def session(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:anyio", "-p", "no:hypothesispytest", "--ssr-sandbox=process"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV"))}
    return subprocess.run(
        [*command, *arguments], cwd=project, env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("name", ["store", "json", "html"])
def test_the_configuration_stays_that_of_the_tests(tmp_path: Path, name: str) -> None:
    """The option's value lies in another project, which has another configuration."""
    project, other = tmp_path / "p", tmp_path / "other"
    project.mkdir()
    (other / "there").mkdir(parents=True)
    (other / "pytest.ini").write_text("[pytest]\nssr_count = 9\naddopts = --no-such-option\n")
    (project / "pytest.ini").write_text("[pytest]\nssr_count = 1\n")
    (project / "shop.py").write_text("def total(values):\n    return sum(values)\n")
    (project / "test_shop.py").write_text(
        "import shop\n\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n\n\ndef test_b():\n    pass\n"
    )
    value = other / "there" / "results.json" if name == "json" else other / "there"
    if name == "json":
        value.write_text("{}")
    done = session(project, "--ssr-inject", f"--ssr-{name}", str(value), f"--ssr-python={plain_python()}", "-n", "2")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "configfile: pytest.ini" in done.stdout
    assert f"rootdir: {project}" in done.stdout
    assert "1 of 1 valid" in done.stdout


def test_options_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "conftest.py").write_text("import sys\n\nprint('conftest', file=sys.stderr)\n")
    (tmp_path / "test_a.py").write_text("def test_a(pytestconfig):\n    assert pytestconfig.rootpath.name != 'there'\n")
    done = session(tmp_path, "--ssr-store", str(tmp_path / "there"), "-q")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("folder", "given"),
    [(".", "services/api"), ("services/api", "."), ("services", "api/"), (".", "{root}/services/api")],
)
def test_sources_are_relative_to_the_current_folder(
    pytester: pytest.Pytester, monorepo: Path, folder: str, given: str
) -> None:
    os.chdir(monorepo / folder)
    config = pytester.parseconfig("--ssr-inject", f"--ssr-source={given.format(root=monorepo)}")
    assert chosen_sources(config) == ["services/api"]
