"""An injector's repository has a project's past commits, and nothing that came after its own commit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.injectors import model as injector_module
from harness.injectors.model import ModelInjector, open_injection
from harness.injectors.project_history import History, history_of, write_history
from harness.models.scripted import ScriptedModel
from pytest_ssr.errors import ProjectError

WEIRD = {"GIT_AUTHOR_NAME": "Ann <x> é", "GIT_AUTHOR_EMAIL": "a@b"}


def git(folder: Path, *arguments: str, **env: str) -> str:
    identity = {f"GIT_{who}_{what}": "a@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **identity, **env}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, subject: str, files: dict[str, str], **env: str) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", subject, **env)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a project in a subfolder, a tag and a branch."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    commit(folder, "first", {"a.py": "A = 1\n", "sub/b.py": "B = 1\n"})
    commit(folder, "top only", {"a.py": "A = 2\n"})
    commit(folder, "second\n\nwith a body", {"sub/b.py": "B = 2\n", "sub/in/c.py": "C = 1\n"}, **WEIRD)
    return folder


def written(history: History | None, tree: Path, target: Path) -> Path:
    assert history is not None
    write_history(history, target, tree)
    return target


def test_a_project_at_the_top(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "v1")
    git(repository, "branch", "other")
    target = written(history_of(repository), repository, tmp_path / "t")
    assert git(target, "log", "--format=%s").splitlines() == ["second", "top only", "first"]
    assert git(target, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
    assert git(target, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(target, "status", "--short") == ""


def test_a_project_in_a_subfolder(repository: Path, tmp_path: Path) -> None:
    history = history_of(repository / "sub")
    assert history is not None
    assert history.prefix == "sub/"
    target = written(history, repository / "sub", tmp_path / "t")
    assert git(target, "log", "--format=%s %an").splitlines() == ["second Ann x é", "first a@localhost"]
    assert git(target, "show", "--format=", "--stat", "HEAD").splitlines()[0].split()[0] == "b.py"
    assert git(target, "show", "HEAD^:b.py") == "B = 1"
    assert git(target, "status", "--short") == ""
    commit(repository, "top again", {"a.py": "A = 3\n"})
    again = history_of(repository / "sub")
    assert again is not None
    assert again.commit == history.commit, "commits elsewhere do not matter"


def test_what_comes_after_a_row_s_commit_stays_hidden(repository: Path, tmp_path: Path) -> None:
    base = git(repository, "rev-parse", "HEAD~1")
    future = commit(repository, "the fix", {"a.py": "FIXED = 1\n"})
    git(repository, "tag", "later")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("A = 2  # now\n")
    target = written(History(repository / ".git", base), tree, tmp_path / "t")
    assert git(target, "log", "--all", "--format=%s").splitlines() == ["The project as it is", "top only", "first"]
    objects = git(target, "cat-file", "--batch-all-objects", "--batch-check").split()
    assert base in objects
    assert future not in objects
    assert git(target, "diff", "HEAD") == "", "a diff shows an injector's own changes only"


def test_a_shallow_history(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{repository}", str(clone))
    target = written(history_of(clone), clone, tmp_path / "t")
    assert git(target, "log", "--format=%s").splitlines() == ["second", "top only"]


def test_a_folder_of_which_no_commit_has_a_file(repository: Path, tmp_path: Path) -> None:
    (repository / "untracked").mkdir()
    assert history_of(repository / "untracked") is None
    assert history_of(tmp_path) is None
    with pytest.raises(ProjectError, match="pack-objects"):
        write_history(History(repository, "0" * 40), tmp_path / "t", repository)


def test_the_mixture_is_uniform_for_subfolders_and_rows(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = tmp_path / "row"
    row.mkdir()
    history = History(repository / ".git", git(repository, "rev-parse", "HEAD~1"))
    injector = ModelInjector(ScriptedModel("m", []), histories={row: history})
    for origin in (repository, repository / "sub", row):
        snapshot: Any = SimpleNamespace(origin=origin)
        drawn = [Random(seed).choice(injector.strategies(snapshot)) for seed in range(200)]
        assert 70 < drawn.count("history") < 130
    assert injector.history(snapshot) == history.commit

    @contextmanager
    def opened(provider: Any, interpreter: Any, tree: Path, **_: object) -> Iterator[str]:
        yield git(tree, "log", "--format=%s")

    monkeypatch.setattr(injector_module, "open_workspace", opened)
    snapshot = SimpleNamespace(origin=row, directory=row)
    runner: Any = SimpleNamespace(provider=None, interpreter=None, snapshot=snapshot)
    with open_injection(runner, "history", history) as log:
        assert str(log).splitlines() == ["The project as it is", "top only", "first"]
