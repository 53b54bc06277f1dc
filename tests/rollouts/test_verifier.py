"""A folder that somebody has repaired gets the grade of the difference, and a verifier's rewards."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven

from pytest_ssr import verifier
from pytest_ssr.errors import ProjectError
from pytest_ssr.grading import unsolved_state
from pytest_ssr.project.solver_checkout import write_solver_tree
from pytest_ssr.records.artifact import INFO, SCHEMA_VERSION
from pytest_ssr.verifier import grade_tree, main, rewards, submitted_files


@pytest.fixture
def task(proven: Proven, tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    shutil.copytree(proven.project, folder / "project", ignore=shutil.ignore_patterns(".git", ".ssr"))
    (folder / "artifact").mkdir()
    for name, data in proven.artifact.contents().items():
        (folder / "artifact" / name).write_bytes(data)
    (folder / "artifact" / INFO).write_text(
        json.dumps({"schema_version": SCHEMA_VERSION, "verdict": proven.verdict.to_json()})
    )
    return folder


@pytest.fixture
def submitted(proven: Proven, tmp_path: Path) -> Path:
    folder = tmp_path / "submitted"
    write_solver_tree(unsolved_state(proven.runner, proven.artifact), folder)
    return folder


@pytest.mark.long
def test_a_folder_is_graded_by_what_differs(task: Path, submitted: Path) -> None:
    first = grade_tree(task, submitted, python=plain_python(), sandbox="process")
    assert (first.resolved, first.tests) == (False, False)
    assert rewards(first) == {"reward": 0, "resolved": 0, "tests": 0, "fail_to_pass": 0, "pass_to_pass": 1}
    code = (submitted / "calc.py").read_text()
    (submitted / "calc.py").write_text(code.replace("return a - b", "return a + b"))
    # What tests and tools leave behind is no part of a repair, nor are changes of the tests.
    (submitted / "__pycache__").mkdir()
    (submitted / "__pycache__" / "calc.cpython-311.pyc").write_bytes(b"x")
    (submitted / "tests" / "test_calc.py").write_text("")
    repaired = grade_tree(task, submitted, python=plain_python(), sandbox="process")
    assert repaired.resolved, repaired.reason
    assert set(rewards(repaired).values()) == {1.0}


@pytest.mark.long
def test_a_folder_that_replaces_the_tests_is_not_resolved(task: Path, submitted: Path) -> None:
    (submitted / "conftest.py").write_text("import pytest\npytest.skip('no', allow_module_level=True)\n")
    assert grade_tree(task, submitted, python=plain_python(), sandbox="process").resolved is False


@pytest.mark.long
def test_an_empty_folder_is_unresolved_and_a_missing_one_has_no_grade(task: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert grade_tree(task, tmp_path / "empty", python=plain_python(), sandbox="process").resolved is False
    with pytest.raises(ProjectError):
        grade_tree(task, tmp_path / "missing", python=plain_python(), sandbox="process")


def test_links_and_special_files_are_not_followed(tmp_path: Path) -> None:
    import os

    folder = tmp_path / "folder"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("x")
    (folder / "code.py").write_text("1")
    (folder / "linked").symlink_to("/etc")
    (folder / "outside.py").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    files = dict(submitted_files(folder))
    assert {path: entry.mode for path, entry in files.items()} == {
        "code.py": 0o100644,
        "linked": 0o120000,
        "outside.py": 0o120000,
    }
    assert files["outside.py"].data == b"/etc/passwd"


@pytest.mark.long
def test_without_a_grade_no_reward_is_written(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewards_folder = tmp_path / "rewards"
    rewards_folder.mkdir(mode=0o755)
    assert main([str(task), str(tmp_path / "missing"), str(rewards_folder)]) == 3
    assert list(rewards_folder.iterdir()) == []
    assert rewards_folder.stat().st_mode & 0o777 == 0o755
    assert "missing" in capsys.readouterr().err


@pytest.mark.long
def test_a_grade_of_the_sandbox_is_no_reward(task: Path, submitted: Path) -> None:
    grade = grade_tree(task, submitted, python=plain_python(), sandbox="process")
    with pytest.raises(ValueError, match="grade"):
        rewards(replace(grade, resolved=None))


@pytest.mark.parametrize(("text", "wanted"), [("2147483648\n", 1536 << 20), ("max\n", 4 << 30), (None, 4 << 30)])
def test_tests_get_less_memory_than_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, wanted: int
) -> None:
    if text is not None:
        (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(verifier, "_MEMORY_LIMITS", (tmp_path / "memory.max", tmp_path / "missing"))
    assert verifier._memory_bytes(4 << 30) == wanted
