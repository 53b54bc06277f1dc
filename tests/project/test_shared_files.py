"""Files that several trees of a store have in common are on disk once."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from pytest_ssr.patch import FileEntry
from pytest_ssr.project.shared_files import FOLDER, SharedFiles
from pytest_ssr.project.snapshot import Snapshot, take_snapshot
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import Limits

FILES = {"a.py": "A = 1\n", "same.py": "A = 1\n", "run": "#!/bin/sh\n"}


def snapshot_of(folder: Path, name: str, files: dict[str, str]) -> Snapshot:
    for path, text in files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    return take_snapshot(folder / name, folder / "trees")


def inode(snapshot: Snapshot, path: str) -> int:
    return (snapshot.directory / path).stat().st_ino


def test_trees_share_equal_files_and_paths_of_one_tree_do_not(tmp_path: Path) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    other = snapshot_of(tmp_path, "other", {**FILES, "a.py": "A = 2\n"})
    assert inode(one, "same.py") == inode(other, "same.py")
    assert inode(one, "a.py") != inode(other, "a.py")
    assert inode(one, "a.py") != inode(one, "same.py")
    (tmp_path / "other" / "run").chmod(0o755)
    executable = take_snapshot(tmp_path / "other", tmp_path / "trees")
    assert inode(one, "run") != inode(executable, "run")
    assert os.access(executable.directory / "run", os.X_OK)
    assert not os.access(one.directory / "run", os.X_OK)


def test_a_damaged_file_is_not_shared(tmp_path: Path) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    (one.directory / "same.py").write_text("B = 1\n")
    other = snapshot_of(tmp_path, "other", {**FILES, "a.py": "A = 2\n"})
    assert other.read("same.py") == b"A = 1\n"
    assert take_snapshot(tmp_path / "one", tmp_path / "trees").read("same.py") == b"A = 1\n"


def test_a_file_is_a_copy_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refused)
    one = snapshot_of(tmp_path, "one", FILES)
    other = snapshot_of(tmp_path, "other", {**FILES, "a.py": "A = 2\n"})
    assert inode(one, "same.py") != inode(other, "same.py")
    assert other.read("same.py") == b"A = 1\n"


def test_the_files_of_a_written_tree_are_shared(tmp_path: Path) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    tree = tmp_path / "two"
    tree.mkdir()
    (tree / "same.py").write_text("A = 1\n")
    (tree / "link").symlink_to("same.py")
    SharedFiles(tmp_path / "trees").share_tree(tree)
    assert (tree / "same.py").stat().st_ino == inode(one, "same.py")
    assert (tree / "link").readlink() == Path("same.py")


@pytest.mark.parametrize("sandbox", ["process", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def test_a_sandbox_does_not_write_to_shared_files(tmp_path: Path, sandbox: str) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    before = (one.directory / "same.py").stat()
    with load_provider(sandbox).open(one.directory, mount_at="/w") as opened:
        for script in ("echo x >> same.py", "chmod 777 same.py", "touch same.py", "ln same.py more", "echo y > more"):
            assert opened.exec(["sh", "-c", script], limits=Limits(wall_s=30)).exit_code == 0
        opened.write("same.py", b"z")
    after = (one.directory / "same.py").stat()
    assert one.read("same.py") == b"A = 1\n"
    assert (before.st_mode, before.st_mtime_ns, before.st_nlink) == (after.st_mode, after.st_mtime_ns, after.st_nlink)


def test_a_place_is_made_with_its_parents(tmp_path: Path) -> None:
    SharedFiles(tmp_path / "trees").place("p/m.py", FileEntry(b"", 0o100644), tmp_path / "t" / "p" / "m.py")
    assert (tmp_path / "t" / "p" / "m.py").read_bytes() == b""


def blob_of(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def test_blobs_that_are_shared_already_are_linked(tmp_path: Path) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    data = FILES["a.py"].encode()
    (tmp_path / "tree").mkdir()
    listed = [
        (0o100644, blob_of(data), "same.py"),
        (0o100755, blob_of(data), "a.py"),
        (0o100644, blob_of(b"new"), "p/new.py"),
        (0o120000, blob_of(data), "link"),
        (0o160000, blob_of(data), "module"),
    ]
    shared = SharedFiles(tmp_path / "trees")
    assert shared.place_blobs(listed, tmp_path / "tree") == ["a.py", "p/new.py", "link", "module"]
    assert (tmp_path / "tree" / "same.py").stat().st_ino == inode(one, "same.py")


def test_a_damaged_file_is_not_linked_by_its_blob(tmp_path: Path) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    (one.directory / "same.py").write_text("B = 1\n")
    (tmp_path / "tree").mkdir()
    listed = [(0o100644, blob_of(FILES["same.py"].encode()), "same.py")]
    assert SharedFiles(tmp_path / "trees").place_blobs(listed, tmp_path / "tree") == ["same.py"]


def test_files_that_no_tree_has_are_removed_but_the_latest(tmp_path: Path) -> None:
    one = snapshot_of(tmp_path, "one", FILES)
    snapshot_of(tmp_path, "other", {"a.py": "A = 2\n"})
    shared = SharedFiles(tmp_path / "trees")
    (one.directory / "a.py").unlink()
    left_s = time.time()

    def count() -> int:
        return len(list((tmp_path / "trees" / FOLDER).rglob("*/*")))

    before = count()
    shared.remove_unused(left_s - 60, 0)
    assert count() == before
    shared.remove_unused(left_s + 60, 1 << 20)
    assert count() == before
    shared.remove_unused(left_s + 60, 0)
    assert count() == before - 1
