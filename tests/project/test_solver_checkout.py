"""Test that a solver's checkout does not contain the answer, and that leaks of the answer are found."""

from __future__ import annotations

import gzip
import py_compile
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ssr.errors import StoreError
from pytest_ssr.grading.grade import repaired_state
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.solver_checkout import find_leaks, omitted_paths, write_solver_tree
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact

CODE = "def total(prices, rate):\n    net = sum(prices)\n    return net + net * rate / 100 - len(prices) * 0.25\n"
BUGGY = "def total(prices, rate):\n    net = sum(prices)\n    return net\n"
LINE = "return net + net * rate / 100 - len(prices) * 0.25"


@pytest.fixture
def original_and_artifact(tmp_path: Path) -> tuple[CodebaseState, BugArtifact]:
    project = tmp_path / "project"
    files = {"shop.py": CODE, "test_shop.py": "import shop\n", "shop.py.orig": CODE, "build/lib/shop.py": CODE}
    files |= {"shop.egg-info/PKG-INFO": CODE, "run.sh": "true\n", "old.diff": CODE}
    files |= {"build/other/shop.py": CODE, "build/html/shop.html": CODE, "build/recipe.txt": "flour\n"}
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "dist").mkdir()
    for name in ("shop-1.tar.gz", "shop-1.zip", "shop-1.whl", "shop-1.egg", "notes.txt"):
        (project / "dist" / name).write_text(CODE if name != "notes.txt" else "notes\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("run.sh")
    (tmp_path / "trees").mkdir()
    original = CodebaseState(take_snapshot(project, tmp_path / "trees"))
    bug = make_patch({"shop.py": (original.entry("shop.py"), FileEntry(BUGGY.encode(), 0o100644))})
    weaken = make_patch({"test_shop.py": (original.entry("test_shop.py"), FileEntry(b"\n", 0o100644))})
    return original, BugArtifact(b"", ("test_shop.py",), b"", bug, weaken)


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", tree, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def test_the_checkout_is_one_commit_without_the_answer(
    original_and_artifact: tuple[CodebaseState, BugArtifact], tmp_path: Path
) -> None:
    original, artifact = original_and_artifact
    tree = tmp_path / "solver"
    write_solver_tree(original.apply(artifact.bug).apply(artifact.weaken), tree)
    assert git(tree, "rev-list", "--all", "--count") == "1"
    assert git(tree, "status", "--porcelain", "--ignored") == ""
    assert git(tree, "ls-files").split() == [
        "build/recipe.txt",
        "dist/notes.txt",
        "link",
        "run.sh",
        "shop.py",
        "test_shop.py",
    ]
    assert git(tree, "remote") == git(tree, "tag") == git(tree, "stash", "list") == ""
    assert not (tree / ".git" / "logs").exists()
    assert (tree / "shop.py").read_text() == BUGGY
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert {p.lstat().st_mtime for p in tree.iterdir() if p.name != ".git"} == {1_000_000_000}
    assert find_leaks(artifact, original, [tree]) == []
    with pytest.raises(StoreError, match="cannot be written"):
        write_solver_tree(original, tree)


def test_git_starts_no_program_that_a_project_names(tmp_path: Path) -> None:
    project, started = tmp_path / "project", tmp_path / "started"
    settings = f'[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch {started}; false"\n'
    for name, text in {
        "a.py": "",
        ".git": "gitdir: other",
        "other/HEAD": "ref: refs/heads/main\n",
        "other/config": settings,
        "other/objects/a": "",
        "other/refs/a": "",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    snapshot = take_snapshot(project, tmp_path / "trees")
    assert not started.exists()
    # Without git, or from an archive, it is a file like any other.
    files = {**snapshot.files, ".git": snapshot.files["a.py"]}
    (snapshot.directory / ".git").write_text("gitdir: other")
    write_solver_tree(CodebaseState(replace(snapshot, files=files)), tmp_path / "solver")
    assert not started.exists()
    assert (tmp_path / "solver" / ".git").is_dir()


def test_the_graded_tree_has_no_old_copies_either(original_and_artifact: tuple[CodebaseState, BugArtifact]) -> None:
    original, artifact = original_and_artifact
    interpreter = SimpleNamespace(readable=())
    runner: Any = SimpleNamespace(original=original, snapshot=original.snapshot, interpreter=interpreter)
    state, _ = repaired_state(runner, artifact, Patch.parse(b""))
    remaining = {p for p in original.snapshot.files if state.entry(p) is not None}
    assert {p for p in remaining if p.startswith(("build", "dist"))} == {"build/recipe.txt", "dist/notes.txt"}


def _pack(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", folder / "repository"], check=True)
    (folder / "repository" / "shop.py").write_text(CODE)
    git(folder / "repository", "add", ".")
    git(folder / "repository", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "old")
    git(folder / "repository", "gc", "-q", "--prune=now")
    (folder / "repository" / "shop.py").unlink()


def _loose(folder: Path) -> None:
    _pack(folder)
    (pack,) = (folder / "repository" / ".git" / "objects" / "pack").glob("*.pack")
    moved = folder / "moved.pack"
    for part in pack.parent.iterdir():
        shutil.move(part, moved if part == pack else folder / part.name)
    with moved.open("rb") as stream:
        subprocess.run(["git", "-C", folder / "repository", "unpack-objects", "-q"], stdin=stream, check=True)
    moved.unlink()


def _bytecode(folder: Path) -> None:
    (folder / "shop.py").write_text(CODE)
    py_compile.compile(str(folder / "shop.py"), cfile=str(folder / "shop.pyc"))
    (folder / "shop.py").unlink()


def _wheel(folder: Path) -> None:
    with zipfile.ZipFile(folder / "shop.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("shop.py", CODE)


def _archive(folder: Path) -> None:
    (folder / "shop.py").write_text(CODE)
    with tarfile.open(folder / "shop.tar.gz", "w:gz") as archive:
        archive.add(folder / "shop.py", "shop-1/shop.py")
    (folder / "shop.py").unlink()


@pytest.mark.parametrize(
    ("plant", "location", "text"),
    [
        (lambda f: (f / "shop.py").write_text(f"x = 1\n\t{LINE}  \n"), "shop.py", LINE),
        (_wheel, "shop.whl!shop.py", LINE),
        (_archive, "shop.tar.gz!shop-1/shop.py", LINE),
        (lambda f: (f / "notes").write_bytes(gzip.compress(CODE.encode())), "notes!", LINE),
        (_bytecode, "shop.pyc", "the bytecode of total"),
        (_pack, "repository/.git (packed objects)", LINE),
        (_loose, "(git object)", LINE),
    ],
)
def test_a_leak_is_found(
    original_and_artifact: tuple[CodebaseState, BugArtifact], tmp_path: Path, plant, location: str, text: str
) -> None:
    original, artifact = original_and_artifact
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "other.py").write_text("x = 1\n" * 1000)
    assert find_leaks(artifact, original, [folder]) == []
    plant(folder)
    results = find_leaks(artifact, original, [folder])
    assert [leak.text for leak in results] == [text]
    assert results[0].path.endswith(location)


def test_lines_that_the_solver_already_has_are_not_leaks(
    original_and_artifact: tuple[CodebaseState, BugArtifact], tmp_path: Path
) -> None:
    original, artifact = original_and_artifact
    (tmp_path / "file").write_text("    net = sum(prices)\n")
    assert find_leaks(artifact, original, [tmp_path / "file", tmp_path / "absent"]) == []


def test_a_package_named_build_is_not_a_copy() -> None:
    paths = ["build/__init__.py", "build/env.py", "src/env.py"]
    assert omitted_paths(paths) == set()
    assert omitted_paths([*paths, "build/lib/env.py", "dist/a.zip"]) == {"build/lib/env.py", "dist/a.zip"}
    assert omitted_paths(["build/env.py", "build/own.py", "env.py"]) == {"build/env.py"}
