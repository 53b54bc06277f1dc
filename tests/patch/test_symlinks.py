"""A file replaced with a symlink, and the reverse, as git writes it: one path is deleted and added."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.patch.apply import apply_patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState

FILE, LINK = FileEntry(b"X = 1\n"), FileEntry(b"other.py", 0o120000)


def git_diff(folder: Path, *, to_link: bool) -> bytes:
    """Return git's diff from a file to a symlink, or the reverse."""

    def git(*arguments: str) -> bytes:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout

    folder.mkdir()
    (folder / "a.py").write_bytes(FILE.data)
    (folder / "b.py").symlink_to(LINK.data.decode())
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    changed = folder / ("a.py" if to_link else "b.py")
    changed.unlink()
    if to_link:
        changed.symlink_to(LINK.data.decode())
    else:
        changed.write_bytes(FILE.data)
    return git("diff")


@pytest.mark.parametrize("to_link", [True, False])
def test_a_diff_by_git_is_parsed_applied_and_reversed(tmp_path: Path, to_link: bool) -> None:
    data = git_diff(tmp_path / "g", to_link=to_link)
    patch = Patch.parse(data)
    path, old, new = ("a.py", FILE, LINK) if to_link else ("b.py", LINK, FILE)
    assert patch.data == data
    assert apply_patch(patch, {path: old}.get) == {path: new}
    assert apply_patch(patch.reverse(), {path: new}.get) == {path: old}
    assert Patch.parse(patch.reverse().data) == patch.reverse()
    assert patch.stats.files == 1
    assert patch.split_files() == patch.split_hunks() == (patch,)


def test_a_new_symlink_is_refused(tmp_path: Path) -> None:
    patch = Patch.parse(git_diff(tmp_path / "g", to_link=True))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_bytes(FILE.data)
    state = CodebaseState(take_snapshot(tmp_path / "p", tmp_path / "trees"))
    with pytest.raises(ArtifactError, match="may not make or change a symlink"):
        state.apply(patch)


DELETED = b"diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
ADDED = b"diff --git a/x b/x\nnew file mode %b\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n"


@pytest.mark.parametrize(
    "data",
    [
        DELETED + ADDED % b"100644",
        ADDED % b"120000" + DELETED,
        DELETED + ADDED % b"120000" + ADDED % b"120000",
        DELETED + DELETED,
    ],
    ids=["no-symlink", "other-order", "added-twice", "deleted-twice"],
)
def test_other_changes_of_one_path_stay_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="x is changed twice"):
        Patch.parse(data)
