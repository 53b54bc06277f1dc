"""Machines that share a store exchange the trees of its artifacts, and believe only the hash of what they receive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from shared_stores import records_of
from small_artifact import ARTIFACT

from harness.database.collect import collect, measure
from harness.database.migrate import check, migrate
from harness.database.sharing import fetch_all, share_store
from pytest_ssr.errors import StoreError
from pytest_ssr.project.snapshot import hash_of, is_complete, read_manifest, take_snapshot
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.storage.shared_trees import archive_of, path_of, place_archive
from pytest_ssr.storage.store import Store


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pack age").mkdir(parents=True)
    (folder / "a.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "pack age" / "é.bin").write_bytes(bytes(range(256)))
    (folder / "link").symlink_to("a.py")
    return folder


def artifact_of(tree_hash: str) -> BugArtifact:
    info = {**ARTIFACT.info, "tree_hash": tree_hash}
    return BugArtifact(
        ARTIFACT.script, ARTIFACT.test_files, ARTIFACT.parser, ARTIFACT.bug, ARTIFACT.weaken, info
    )  # fmt: skip


def test_another_machine_receives_the_tree_of_an_artifact(shared: list[Store], project: Path) -> None:
    store, other = shared
    snapshot = take_snapshot(project, store.trees)
    store.put_artifact("i", artifact_of(snapshot.tree_hash))
    fetch_all(other.root)
    tree = other.trees / snapshot.tree_hash
    assert is_complete(tree)
    assert read_manifest(tree) == snapshot.files
    assert (tree / "tree" / "run.sh").stat().st_mode & 0o100
    # It is the copy that the project's own snapshot would have made.
    assert take_snapshot(project, other.trees).directory == tree / "tree"


def test_a_tree_whose_artifact_a_worker_wrote_is_shared_when_that_is_published(
    shared: list[Store], project: Path
) -> None:
    store, other = shared
    snapshot = take_snapshot(project, store.trees)
    other.put_artifact("i", artifact_of(snapshot.tree_hash))
    path = path_of(snapshot.tree_hash)
    assert records_of(store).get(path) is None
    store.publish("i")
    assert records_of(store).get(path) is not None


def test_equal_trees_are_one_blob(shared: list[Store], project: Path) -> None:
    store = shared[0]
    snapshot = take_snapshot(project, store.trees)
    before = len(records_of(store).blobs.sizes())
    for name in ("i", "k"):
        store.put_artifact(name, artifact_of(snapshot.tree_hash))
    records = records_of(store)
    # The tree, and the four files of the artifact that are not records; they are equal, too.
    assert len(records.blobs.sizes()) - before == 1 + 5
    first = records.get(path_of(snapshot.tree_hash))
    for path in (project / "a.py").parent.iterdir():
        path.touch()
    assert archive_of(store.trees / snapshot.tree_hash) == first


def test_trees_are_taken_over_checked_measured_and_never_collected(project: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    snapshot = take_snapshot(project, store.trees)
    store.put_artifact("i", artifact_of(snapshot.tree_hash))
    assert migrate(store.root, None, dry_run=True, progress=lambda line: None).trees == 1
    records = records_of(share_store(store.root))
    assert check(store.root, records, progress=lambda line: None).unshared[-1] == path_of(snapshot.tree_hash)
    assert [migrate(store.root, records, progress=lambda line: None).trees for _ in range(2)] == [1, 0]
    found = check(store.root, records, progress=lambda line: None)
    assert (found.missing, found.damaged, found.unshared) == ((), (), ())
    assert "trees" in {part.name for part in measure(store.root, records).results}
    assert collect(records, grace_s=0, progress=lambda line: None).blobs == 0


def test_a_tree_that_is_not_here_or_was_changed_is_not_shared(shared: list[Store], project: Path) -> None:
    store = shared[0]
    snapshot = take_snapshot(project, store.trees)
    for name in ("0" * 40, "../../etc", None):
        assert not store.shared_trees.share(name)
    (store.trees / snapshot.tree_hash / "manifest.json").write_text("{}")
    assert not store.shared_trees.share(snapshot.tree_hash)


def archive(*members: tuple[str, bytes | None]) -> bytes:
    """Return an archive of files, and of symbolic links to `/` where there is no content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if data is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/"
            else:
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data or b""))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an archive",
        archive(("a.py", b"x = 1\n"))[:40],
        archive(("a.py", b"x = 1\n"), ("more.py", b"")),
        archive(("../a.py", b"")),
        archive(("/a.py", b"")),
        archive(("a", None), ("a/etc", b"")),
    ],
    # Archives hold the time of their making, which must not be a part of a test's name.
    ids=range(7),
)
def test_an_archive_that_holds_something_else_is_refused(data: bytes, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("x = 1\n")
    name = hash_of(take_snapshot(project, tmp_path / "original").files)
    with pytest.raises(StoreError):
        place_archive(data, tmp_path / "trees", name)
    assert not (tmp_path / "trees").exists()
    place_archive(archive(("a.py", b"x = 1\n")), tmp_path / "trees", name)
    assert is_complete(tmp_path / "trees" / name)
