"""Which interpreter runs a project's tests, and what is said when it cannot."""

from __future__ import annotations

import site
import venv
from pathlib import Path

import pytest
from plain import plain_python

import pytest_ssr
from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.interpreter import find_interpreter
from pytest_ssr.opening import open_workbench
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A project whose own environment holds no pytest."""
    venv.create(tmp_path / ".venv", with_pip=False)
    return tmp_path


def test_an_environment_without_pytest_is_passed_over_with_a_note(bare: Path) -> None:
    found = find_interpreter(bare, None)
    assert found.executable == plain_python()
    assert found.note == f"{bare / '.venv/bin/python'} is not used: it has no pytest, or does not run"


def test_an_environment_that_is_named_must_have_pytest(bare: Path) -> None:
    with pytest.raises(ProjectError, match=r"has no pytest; run: .* -m pip install pytest"):
        find_interpreter(bare, bare / ".venv/bin/python")


def test_a_broken_environment_is_passed_over(tmp_path: Path) -> None:
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert find_interpreter(tmp_path, None).executable == plain_python()


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="there is no interpreter at"):
        find_interpreter(tmp_path, tmp_path / "nowhere")


def test_the_current_one_is_used_where_the_project_has_none(tmp_path: Path) -> None:
    assert find_interpreter(tmp_path, None).note == ""


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, Path]:
    """A project of a package and a module, and the site directory where both are installed, too."""
    project = tmp_path / "project"
    venv.create(project / ".venv", with_pip=False)
    (place,) = project.glob(".venv/lib/python*/site-packages")
    needed = [*site.getsitepackages(), str(Path(pytest_ssr.__file__).parents[1]), str(project)]
    (place / "ours.pth").write_text("\n".join(needed))
    for top in (project, place):
        (top / "shop").mkdir()
        for name in ("shop/__init__.py", "shop/price.py", "alone.py"):
            (top / name).write_text("RATE = 7\n")
    (place / "other.py").write_text("RATE = 7\n")
    (project / "test_alone.py").write_text("import alone, other, shop.price\n\n\ndef test_it():\n    pass\n")
    return project, place


def test_what_is_installed_of_the_project_is_known(installed: tuple[Path, Path]) -> None:
    project, place = installed
    assert find_interpreter(project, None).hidden == (f"{place}/alone.py", f"{place}/shop/")
    (project / "alone.py").unlink()
    assert find_interpreter(project, None).hidden == (f"{place}/shop/",)


@pytest.mark.parametrize("sandbox", [pytest.param(n, marks=getattr(pytest.mark, n)) for n in ("bubblewrap", "docker")])
def test_no_run_can_read_it(installed: tuple[Path, Path], tmp_path: Path, sandbox: str) -> None:
    project, place = installed
    bench = open_workbench(project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox=sandbox)
    try:
        run, _ = bench.suite(bench.original)
        assert run.passing == {"test_alone.py::test_it"}, run.reason
        with bench.open(bench.original) as opened:
            script = f"cat alone.py; cat {place}/alone.py {place}/shop/*; cat {place}/other.py"
            done = opened.exec(["sh", "-c", script], limits=Limits())
        assert done.stdout == b"RATE = 7\n" * 2
    finally:
        if sandbox == "docker":
            bench.provider.close()  # type: ignore[attr-defined] # it keeps containers
