"""Which interpreter runs a project's tests, and what is said when it cannot."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.interpreter import find_interpreter


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A project whose own environment holds no pytest."""
    venv.create(tmp_path / ".venv", with_pip=False)
    return tmp_path


def test_an_environment_without_pytest_is_passed_over_with_a_note(bare: Path) -> None:
    found = find_interpreter(bare, None)
    assert found.executable == Path(sys.executable)
    assert found.note == f"{bare / '.venv/bin/python'} is not used: it has no pytest, or does not run"


def test_an_environment_that_is_named_must_have_pytest(bare: Path) -> None:
    with pytest.raises(ProjectError, match=r"has no pytest; run: .* -m pip install pytest"):
        find_interpreter(bare, bare / ".venv/bin/python")


def test_a_broken_environment_is_passed_over(tmp_path: Path) -> None:
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert find_interpreter(tmp_path, None).executable == Path(sys.executable)


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="there is no interpreter at"):
        find_interpreter(tmp_path, tmp_path / "nowhere")


def test_the_current_one_is_used_where_the_project_has_none(tmp_path: Path) -> None:
    assert find_interpreter(tmp_path, None).note == ""
