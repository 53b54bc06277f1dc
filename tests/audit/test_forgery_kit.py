"""The kit of forgeries as data: complete, valid, and applied to trees and as scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.audit import forgery_kit
from harness.audit.forgery_kit import (
    PatchForgery,
    row_forgeries,
    solution_in_comments,
    task_forgeries,
)
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState

TASKS = task_forgeries()
ROWS = row_forgeries()
IDS = ("tests/test_a.py::test_one", "tests/test_a.py::test_two")


def state(folder: Path, files: dict[str, str]) -> CodebaseState:
    project = folder / "project"
    for name, text in {"code.py": "x = 1\n", **files}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return CodebaseState(take_snapshot(project, folder / "trees"))


def text(entry: FileEntry | None) -> str:
    return entry.data.decode() if entry is not None else ""


def run(script: str, folder: Path) -> None:
    subprocess.run(["bash", "-c", script], cwd=folder, check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)})


def test_each_file_of_the_kit_is_tried_and_each_name_has_a_file():
    folder = Path(forgery_kit.__file__).with_name("forgeries")
    files = {p.stem for kind in ("patches", "scripts") for p in (folder / kind).iterdir()}
    assert files == {f.name for f in (*ROWS, *TASKS)}
    assert 10 <= len(ROWS) <= 14
    assert all(f.tries and "\n" not in f.tries and not f.tries.startswith("#") for f in (*ROWS, *TASKS))


@pytest.mark.parametrize("forgery", ROWS, ids=lambda f: f.name)
def test_the_source_of_each_patch_is_valid(forgery: PatchForgery):
    for source in (forgery.source(IDS), forgery.source(None), *forgery.files.values()):
        compile(source, forgery.name, "exec")
        assert "@TESTS@" not in source


@pytest.mark.parametrize("forgery", TASKS, ids=lambda f: f.name)
def test_each_script_is_valid(forgery: forgery_kit.ScriptForgery):
    done = subprocess.run(["bash", "-n"], input=forgery.script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert forgery.script.strip()


def test_a_separate_verifier_gets_what_it_can_see_first():
    names = [f.name for f in task_forgeries(is_separate=True)]
    assert sorted(names) == sorted(f.name for f in TASKS)
    assert names.index("root-conftest") < names.index("background-writer")
    assert TASKS[0].name == "background-writer"


def test_a_patch_adds_to_what_is_there(tmp_path: Path):
    tree = state(tmp_path, {"conftest.py": "kept = 1\n"})
    forgery = PatchForgery("a", "b", module="print(@TESTS@)", files={"conftest.py": "added = 2\n"})
    changes = forgery.changes(tree, ["code.py"], IDS)
    assert text(changes["code.py"]) == f"x = 1\n\n\nprint({list(IDS)!r})"
    assert text(changes["conftest.py"]) == "kept = 1\n\n\nadded = 2\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "[pytest]\naddopts = -p forged\n"),
        ("[pytest]\nminversion = 7\n", "[pytest]\naddopts = -p forged\nminversion = 7\n"),
        ("[pytest]\naddopts = -q\n", "[pytest]\naddopts = -p forged  -q\n"),
    ],
)
def test_options_join_those_of_the_project(tmp_path: Path, before: str | None, after: str):
    tree = state(tmp_path, {"pytest.ini": before} if before is not None else {})
    changes = PatchForgery("a", "b", options="-p forged").changes(tree, ["code.py"], IDS)
    assert {path: text(entry) for path, entry in changes.items()} == {"pytest.ini": after}


def test_as_a_script_a_patch_changes_the_code_and_not_the_tests(tmp_path: Path):
    for name in ("code.py", "pkg/more.py", "tests/helper.py", "test_code.py", ".hidden/code.py", "data.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    run(PatchForgery("a", "b", module="y = '$HOME'\n", files={"conftest.py": "z = 3\n"}).script, tmp_path)
    changed = {
        str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file() and "y = '$HOME'" in p.read_text()
    }
    assert changed == {"code.py", "pkg/more.py"}
    assert (tmp_path / "conftest.py").read_text().strip() == "z = 3"


def test_a_solution_as_comments_leaves_the_code_as_it_is(tmp_path: Path):
    (tmp_path / "code.py").write_text("x = 1\n")
    diff = b"diff --git a/code.py b/code.py\n--- a/code.py\n+++ b/code.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\ndiff --git a/new/a.js b/new/a.js\nnew file mode 100644\n--- /dev/null\n+++ b/new/a.js\n@@ -0,0 +1 @@\n+f()\n"
    run(solution_in_comments(Patch.parse(diff)).script, tmp_path)
    assert (tmp_path / "code.py").read_text().split("\n")[:2] == ["x = 1", "# x = 2"]
    assert (tmp_path / "new" / "a.js").read_text().startswith("// f()\n")
