"""The caches of a machine stay under their limit, and what a worker uses stays in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from harness.datasets.repositories import Repositories
from harness.executors import pulled_images
from harness.executors.cache_room import CACHE_BYTES
from harness.executors.node import Node
from harness.executors.trees import TreeCopy, pack
from harness.storage.rebuilt import using
from pytest_ssr.errors import SandboxError, SettingsError, StoreWriteError
from pytest_ssr.project.snapshot import Snapshot, take_snapshot
from pytest_ssr.sandbox.docker.provider import DockerProvider


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


RUN, OTHER = "a" * 24, "b" * 24


def put(folder: Path, used_at: float) -> Path:
    """Write a folder of 100,000 bytes that was used at a time."""
    folder.mkdir(parents=True)
    (folder / "large.bin").write_bytes(b"x" * 100_000)
    os.utime(folder, (used_at, used_at))
    return folder


def test_what_was_made_for_rows_makes_room_in_the_caches_of_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_BYTES, "250000")
    node, other = node_of(tmp_path / RUN), node_of(tmp_path / OTHER)
    clone = put(node.store.root / "repositories" / "acme__shop.git", 1)
    in_use = put(node.store.root / "environments" / "e1", 2)
    old = put(other.store.root / "environments" / "e2", 3)
    tree = put(other.store.trees / "t1", 4)
    own = put(tmp_path / "elsewhere" / "trees" / "t2", 0)
    left = put(node.store.root / "environments" / ".removed-1", 0)
    repositories = Repositories(node_of(tmp_path / RUN).store)
    assert repositories.repository("acme/shop") == clone
    with using(other.store, "environments", "e3"), using(node.store, "environments", "e1"):
        os.utime(in_use, (2, 2))
        os.utime(clone, (1, 1))
        put(other.store.root / "environments" / "e3", 5)
        node.make_room()
        # What nobody uses is gone, whatever the limit leaves.
        assert [p.exists() for p in (clone, in_use, old, tree, own, left)] == [True, True, False, False, True, False]
        repositories.release()
        node.make_room()
        assert [p.exists() for p in (clone, in_use)] == [False, True]


class Engine(DockerProvider):
    """An engine whose images are in a dictionary, and which pulls every image."""

    held: ClassVar[dict[str, int]] = {}
    busy: ClassVar[set[str]] = set()

    def local_size(self, image: str) -> int | None:
        return self.held.get(image)

    def image_digest(self) -> str:
        self.held[self.image] = 100_000
        return "sha256:0"

    def remove_image(self) -> None:
        if self.image in self.busy:
            raise SandboxError("a container has it")
        del self.held[self.image]


def test_only_images_that_workers_have_pulled_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulled_images, "load_provider", lambda name: Engine(name.partition(":")[2]))
    monkeypatch.setattr(Engine, "held", {"owned": 500_000})
    monkeypatch.setattr(Engine, "busy", {"held-by-a-container"})
    monkeypatch.setenv(CACHE_BYTES, "150000")
    node = node_of(tmp_path / RUN)
    for name in ("owned", "held-by-a-container", "a", "b", "c"):
        with node.images.using(f"docker:{name}"):
            node.make_room()
            assert name in Engine.held
    # The limit is for one image; the one in use stays, and those that nobody uses go.
    assert set(Engine.held) == {"owned", "held-by-a-container", "c"}
    with node.images.using("docker:c"), node.images.using("docker:d"):
        node.make_room()
        assert {"c", "d"} <= Engine.held.keys()


def test_a_limit_that_is_no_number_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_BYTES, "20 GB")
    with pytest.raises(SettingsError):
        node_of(tmp_path / RUN).make_room()
