"""Compiled files beside a snapshot's sources: they are used, and never for a file that was changed."""

from __future__ import annotations

import os
import py_compile
import shutil
import sys
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution import bytecode
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.shared_files import EPOCH_S
from pytest_ssr.records.test_run import RunStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

MODULE = "def one():\n    return 1\n"
TESTS = "from m import one\n\n\ndef test_one():\n    assert one() == 1\n"
BOTH = ["process", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)]


def runner_on(folder: Path, sandbox: str, files: dict[str, str]) -> Runner:
    project = folder / "p"
    project.mkdir(exist_ok=True)
    for name, text in files.items():
        (project / name).write_text(text)
    store = Store(folder / "store")
    return open_runner(project, store, settings=RuleSettings(), sandbox=sandbox, python=plain_python())


def compiled_in(directory: Path) -> list[str]:
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*.pyc"))


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_change_of_the_same_size_is_run_and_not_the_compiled_original(tmp_path: Path, sandbox: str) -> None:
    runner = runner_on(tmp_path, sandbox, {"m.py": MODULE, "test_m.py": TESTS})
    names = compiled_in(runner.snapshot.directory)
    assert any(n.startswith("__pycache__/m.cpython") for n in names)
    # What pytest compiles contains the path of the tests, which in a plain process differs each time.
    assert any("-pytest-" in n for n in names) is (sandbox == "bubblewrap")
    assert runner.suite(runner.original)[0].passing == {"test_m.py::test_one"}
    for path, old, new in (("m.py", b"return 1", b"return 2"), ("test_m.py", b"== 1", b"== 3")):
        text = runner.snapshot.read(path).replace(old, new)
        assert len(text) == len(runner.snapshot.read(path))
        state = runner.original.replace({path: FileEntry(text, 0o100644)})
        assert runner.suite(state)[0].passing == frozenset()
    assert compiled_in(runner.snapshot.directory) == names


def test_all_files_of_a_snapshot_have_one_time_long_past(tmp_path: Path) -> None:
    runner = runner_on(tmp_path, "process", {"m.py": MODULE, "test_m.py": TESTS})
    times = {p.stat().st_mtime for p in runner.snapshot.directory.rglob("*.py")}
    assert times == {float(EPOCH_S)}


def test_a_tree_that_is_compiled_is_not_compiled_again(tmp_path: Path) -> None:
    files = {"m.py": MODULE, "test_m.py": TESTS}
    first = runner_on(tmp_path, "process", files).snapshot.directory
    inode = first.stat().st_ino
    second = runner_on(tmp_path, "process", files).snapshot.directory
    assert (first, inode) == (second, second.stat().st_ino)
    assert runner_on(tmp_path, "process", {**files, "m.py": MODULE + "X = 1\n"}).snapshot.directory != first


def test_only_compiled_files_of_a_source_are_kept(tmp_path: Path) -> None:
    """The tests write forged compiled files while they are collected."""
    forged = tmp_path / "forged.py"
    forged.write_text("def one():\n    return 5\n")
    os.utime(forged, (EPOCH_S, EPOCH_S - 7))
    py_compile.compile(str(forged), cfile=str(tmp_path / "forged.pyc"))
    data = (tmp_path / "forged.pyc").read_bytes()
    tag = sys.implementation.cache_tag
    writing = (
        "import os\nos.makedirs('__pycache__', exist_ok=True)\n"
        f"for name in ('none.{tag}.pyc', 'm.{tag}.pyc', 'm.txt'):\n"
        f"    open('__pycache__/' + name, 'wb').write({data!r})\n"
        f"os.symlink('/etc/passwd', '__pycache__/test_m.{tag}.pyc')\n\n\ndef test_none():\n    pass\n"
    )
    runner = runner_on(tmp_path, "process", {"m.py": MODULE, "test_m.py": writing})
    assert compiled_in(runner.snapshot.directory) == []


def test_a_project_that_cannot_be_collected_runs_as_it_is(tmp_path: Path) -> None:
    runner = runner_on(tmp_path, "process", {"m.py": MODULE, "test_m.py": "import os\nos._exit(7)\n"})
    assert compiled_in(runner.snapshot.directory) == []
    assert runner.suite(runner.original)[0].status is RunStatus.CRASHED


def test_compiled_files_are_kept_if_the_trees_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of a row are not collected again for each patch that is evaluated later."""
    project, store, trees = tmp_path / "p", Store(tmp_path / "store"), tmp_path / "store" / "graded" / "trees"
    project.mkdir()
    (project / "m.py").write_text(MODULE)
    (project / "test_m.py").write_text(TESTS)

    def compiled() -> dict[str, bytes]:
        trees.mkdir(parents=True)
        runner = open_runner(
            project, store, settings=RuleSettings(), sandbox="process", python=plain_python(), trees=trees
        )
        assert runner.suite(runner.original)[0].passing == {"test_m.py::test_one"}
        folder = runner.snapshot.directory
        return {name: (folder / name).read_bytes() for name in compiled_in(folder)}

    first = compiled()
    assert any(name.startswith("__pycache__/m.cpython") for name in first)
    shutil.rmtree(trees)
    monkeypatch.setattr(bytecode, "_compiled", lambda *_: pytest.fail("the tests were collected again"))
    assert compiled() == first


def test_two_processes_may_compile_a_tree_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = runner_on(tmp_path, "process", {"m.py": MODULE, "test_m.py": TESTS}).snapshot.directory
    rename = Path.rename

    def renamed_after_another(path: Path, target: Path) -> Path:
        if target == first:
            shutil.copytree(tmp_path / "other", first)
        return rename(path, target)

    shutil.move(first, tmp_path / "other")
    monkeypatch.setattr(Path, "rename", renamed_after_another)
    assert runner_on(tmp_path, "process", {"m.py": MODULE, "test_m.py": TESTS}).snapshot.directory == first
    assert not list(first.parent.glob(".tmp-*"))
