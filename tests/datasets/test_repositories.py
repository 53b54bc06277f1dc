"""An instance's files, its commit, tests and reference solution, come from an existing or a new clone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rows import BASE, FIXED, TEST_ADD, git

from harness.datasets import InstanceError
from harness.datasets.families import read_row
from harness.datasets.repositories import Repositories
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.shared_files import SharedFiles
from pytest_ssr.sandbox.mirrors import VARIABLE
from pytest_ssr.storage.store import Store


def test_the_written_tree_is_solved_and_the_clone_is_unchanged(repository, row, tmp_path: Path):
    clones = repository[0]
    Repositories(Store(tmp_path / "store"), clones).write(read_row(row, ""), tmp_path / "tree", SharedFiles(tmp_path))
    assert (tmp_path / "tree" / "shop.py").read_text() == FIXED
    assert (tmp_path / "tree" / "tests" / "test_shop.py").read_text() == TEST_ADD
    assert not (tmp_path / "tree" / ".git").exists()
    assert git(clones / "acme__shop", "status", "--porcelain") == ""
    assert (clones / "acme__shop" / "shop.py").read_text() == BASE["shop.py"]


def test_a_solved_commit_is_not_patched(repository, row, tmp_path: Path):
    clones = repository[0]
    commit = git(clones / "acme__shop", "rev-parse", "HEAD").strip()
    row |= {"repo": f"swesmith/acme__shop.{commit[:8]}", "base_commit": "", "test_patch": ""}
    instance = read_row(row, "")
    Repositories(Store(tmp_path / "store"), clones).write(instance, tmp_path / "tree", SharedFiles(tmp_path))
    assert (tmp_path / "tree" / "shop.py").read_text() == BASE["shop.py"]


@pytest.mark.parametrize("name", ["acme__shop", "acme__shop.git", "acme/shop", "shop"])
def test_clones_have_several_names_and_may_be_bare(repository, row, tmp_path: Path, name: str):
    target = tmp_path / "clones" / name
    target.parent.mkdir(parents=True)
    git(tmp_path, "clone", "-q", "--bare", str(repository[0] / "acme__shop"), str(target))
    Repositories(Store(tmp_path / "store"), tmp_path / "clones").write(
        read_row(row, ""), tmp_path / "tree", SharedFiles(tmp_path)
    )
    assert (tmp_path / "tree" / "shop.py").read_text() == FIXED


def test_a_missing_repository_is_cloned_once(repository, row, tmp_path: Path):
    messages = []
    remote = f"file://{repository[0]}/{{repo}}"
    (tmp_path / "link").mkdir()
    repositories = Repositories(
        Store(tmp_path / "store"), remote=remote.replace("{repo}", "acme__shop"), report=messages.append
    )
    first, second = repositories.repository("acme/shop"), repositories.repository("acme/shop")
    assert first == second
    again = Repositories(Store(tmp_path / "store"), remote="file:///nowhere", report=messages.append)
    assert again.repository("acme/shop") == first
    assert messages == ["cloning acme/shop"]


def test_a_repository_is_cloned_from_its_mirror(repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, f"https://github.com/=file://{repository[0]}/")
    repositories = Repositories(Store(tmp_path / "store"), remote="https://github.com/acme__shop")
    assert repositories.repository("acme/shop").is_dir()


def test_unavailable_repositories_and_commits_are_errors(repository, row, tmp_path: Path):
    store = Store(tmp_path / "store")
    with pytest.raises(InstanceError, match=r"cannot be cloned from file:///nowhere: .*--repos"):
        Repositories(store, remote="file:///nowhere").repository("acme/other")
    assert list((store.root / "repositories").iterdir()) == []
    with pytest.raises(SettingsError, match="is not a folder"):
        Repositories(store, tmp_path / "none")
    with pytest.raises(InstanceError, match="acme__shop-1: 000000000000 of acme/shop"):
        Repositories(store, repository[0]).write(
            read_row({**row, "base_commit": "0" * 40}, ""), tmp_path / "a", SharedFiles(tmp_path)
        )
    other = {**row, "patch": row["patch"].replace("a - b", "a * b")}
    with pytest.raises(InstanceError, match="acme__shop-1: patch does not apply"):
        Repositories(store, repository[0]).write(read_row(other, ""), tmp_path / "b", SharedFiles(tmp_path))


def test_nothing_is_written_behind_a_symlink(tmp_path: Path, row):
    repository = tmp_path / "clones" / "acme__shop"
    repository.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (repository / "lib").symlink_to(tmp_path / "outside")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "link"]):
        git(repository, *command)
    patch = (
        "diff --git a/lib/x.py b/lib/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/lib/x.py\n@@ -0,0 +1 @@\n+a = 1\n"
    )
    commit = git(repository, "rev-parse", "HEAD").strip()
    instance = read_row({**row, "base_commit": commit, "patch": patch, "test_patch": ""}, "")
    with pytest.raises(InstanceError, match="symlink"):
        Repositories(Store(tmp_path / "store"), repository.parent).write(
            instance, tmp_path / "tree", SharedFiles(tmp_path)
        )
    assert list((tmp_path / "outside").iterdir()) == []


def test_files_are_read_from_git_once_and_as_git_writes_them(repository, row, tmp_path: Path):
    clone, shared = repository[0] / "acme__shop", SharedFiles(tmp_path)
    repositories = Repositories(Store(tmp_path / "store"), repository[0])
    for name in ("a", "b"):
        repositories.write(read_row(row, ""), tmp_path / name, shared)
    first, second = (tmp_path / name / "shop.py" for name in ("a", "b"))
    assert first.stat().st_ino == second.stat().st_ino
    (clone / ".gitattributes").write_text("*.py eol=crlf\n")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "attributes")
    converted = read_row({**row, "base_commit": git(clone, "rev-parse", "HEAD").strip(), "test_patch": ""}, "")
    repositories.write(replace(converted, begins_solved=True), tmp_path / "c", shared)
    assert (tmp_path / "c" / "shop.py").read_bytes() == BASE["shop.py"].replace("\n", "\r\n").encode()
