"""Test the choice of the interpreter that runs a project's tests, and its error messages."""

from __future__ import annotations

import json
import site
import subprocess
import venv
from pathlib import Path

import pytest
from plain import plain_python

import pytest_ssr
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ProjectError
from pytest_ssr.project.interpreter import _PROBE, find_interpreter
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A project whose own environment has no pytest."""
    venv.create(tmp_path / ".venv", with_pip=False)
    return tmp_path


def test_an_environment_without_pytest_is_skipped_with_a_note(bare: Path) -> None:
    interpreter = find_interpreter(bare, None)
    assert interpreter.executable == plain_python()
    assert interpreter.note == f"{bare / '.venv/bin/python'} is not used: it has no pytest, or does not run"


def test_an_environment_that_is_named_must_have_pytest(bare: Path) -> None:
    with pytest.raises(ProjectError, match=r"has no pytest; run: .* -m pip install pytest"):
        find_interpreter(bare, bare / ".venv/bin/python")


def test_a_broken_environment_is_skipped(tmp_path: Path) -> None:
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert find_interpreter(tmp_path, None).executable == plain_python()


def test_the_interpreter_of_a_project_gets_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_DATABASE", "postgresql://ssr:secret@db/ssr")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\nexit 1\n")
    python.chmod(0o755)
    find_interpreter(tmp_path, None)
    seen = (tmp_path / "seen").read_text()
    assert "PATH=" in seen
    assert "secret" not in seen


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="there is no interpreter at"):
        find_interpreter(tmp_path, tmp_path / "nowhere")


def test_the_current_interpreter_is_the_default(tmp_path: Path) -> None:
    assert find_interpreter(tmp_path, None).note == ""


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, Path]:
    """A project of a package and a module, and the site directory where both are also installed."""
    project = tmp_path / "project"
    venv.create(project / ".venv", with_pip=False)
    (site_packages,) = project.glob(".venv/lib/python*/site-packages")
    needed = [*site.getsitepackages(), str(Path(pytest_ssr.__file__).parents[1]), str(project)]
    (site_packages / "ours.pth").write_text("\n".join(needed))
    for top in (project, site_packages):
        (top / "shop").mkdir()
        for name in ("shop/__init__.py", "shop/price.py", "alone.py"):
            (top / name).write_text("RATE = 7\n")
    (site_packages / "other.py").write_text("RATE = 7\n")
    (project / "test_alone.py").write_text("import alone, other, shop.price\n\n\ndef test_it():\n    pass\n")
    return project, site_packages


def test_installed_copies_of_the_project_are_hidden(installed: tuple[Path, Path]) -> None:
    project, site_packages = installed
    assert find_interpreter(project, None).hidden == (f"{site_packages}/alone.py", f"{site_packages}/shop/")
    (project / "alone.py").unlink()
    assert find_interpreter(project, None).hidden == (f"{site_packages}/shop/",)


@pytest.mark.parametrize("sandbox", [pytest.param(n, marks=getattr(pytest.mark, n)) for n in ("bubblewrap", "docker")])
def test_no_run_can_read_the_installed_copies(installed: tuple[Path, Path], tmp_path: Path, sandbox: str) -> None:
    project, site_packages = installed
    runner = open_runner(project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox=sandbox)
    try:
        run, _ = runner.suite(runner.original)
        assert run.passing == {"test_alone.py::test_it"}, run.reason
        with runner.open(runner.original) as opened:
            script = f"cat alone.py; cat {site_packages}/alone.py {site_packages}/shop/*; cat {site_packages}/other.py"
            done = opened.exec(["sh", "-c", script], limits=Limits())
        assert done.stdout == b"RATE = 7\n" * 2
    finally:
        if sandbox == "docker":
            runner.provider.close()  # type: ignore[attr-defined] # it keeps containers


def test_distributions_are_found_without_importlib_metadata() -> None:
    """As on Python 3.6 and 3.7, which images of old projects hold."""
    block = "import sys; sys.modules['importlib.metadata'] = None\n"
    command = [str(plain_python()), "-c", block + _PROBE, json.dumps([[], []])]
    facts = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert ["pytest", pytest.__version__] in facts["dists"]
