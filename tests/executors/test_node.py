"""A machine's cache of trees stays under its limit, and what a worker uses stays in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.executors.node import CACHE_BYTES, Node
from harness.executors.trees import TreeCopy, pack
from pytest_ssr.errors import StoreWriteError
from pytest_ssr.project.snapshot import Snapshot, take_snapshot


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    project = tmp_path / "project"
    (project / "package").mkdir(parents=True)
    (project / "package" / "module.py").write_text("x = 1\n")
    (project / "run.sh").write_text("true\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("package")
    (project / "large.bin").write_bytes(b"x" * 100_000)
    return take_snapshot(project, tmp_path / "trees")


def copy_of(snapshot: Snapshot, name: str, fetched: list[str]) -> TreeCopy:
    def fetch() -> bytes:
        fetched.append(name)
        return pack(snapshot.directory)

    return TreeCopy(name, snapshot, fetch)


def node_of(folder: Path) -> Node:
    return Node.open(folder, 1, 1, {})


def test_a_tree_is_the_same_elsewhere_and_is_fetched_once(snapshot: Snapshot, tmp_path: Path) -> None:
    fetched: list[str] = []
    copy = copy_of(snapshot, "t1", fetched)
    placed = node_of(tmp_path / "node").use_tree(copy)
    again = node_of(tmp_path / "node").use_tree(copy)
    assert placed.directory == again.directory != snapshot.directory
    assert take_snapshot(placed.directory, tmp_path / "others").tree_hash == snapshot.tree_hash
    assert fetched == ["t1"]


def test_a_damaged_tree_is_fetched_again(snapshot: Snapshot, tmp_path: Path) -> None:
    fetched: list[str] = []
    copy = copy_of(snapshot, "t1", fetched)
    placed = node_of(tmp_path / "node").use_tree(copy)
    (placed.directory / "package" / "module.py").write_text("x = 2\n")
    node_of(tmp_path / "node").use_tree(copy)
    assert placed.read("package/module.py") == b"x = 1\n"
    assert len(fetched) == 2


def test_trees_that_nobody_uses_make_room(snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_BYTES, "250000")
    using, fetched = node_of(tmp_path / "node"), list[str]()
    first = using.use_tree(copy_of(snapshot, "t1", fetched))
    for name in ("t2", "t3", "t4"):
        # A worker that has ended uses nothing.
        node_of(tmp_path / "node").use_tree(copy_of(snapshot, name, fetched))
    kept = sorted(p.name for p in first.directory.parent.iterdir())
    assert "t1" in kept
    assert "t4" in kept
    assert len(kept) < 4


def test_a_tree_that_cannot_be_written_is_a_fault_of_the_machine(snapshot: Snapshot, tmp_path: Path) -> None:
    node = node_of(tmp_path / "node")
    (node.store.trees / "t1").write_text("in the way")
    with pytest.raises(StoreWriteError):
        node.use_tree(copy_of(snapshot, "t1/nested", []))
