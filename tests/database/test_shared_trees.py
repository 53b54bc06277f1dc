"""Machines that share a store exchange the trees of its artifacts, and believe only the hash of what they receive."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from shared_stores import records_of
from small_artifact import ARTIFACT

from harness.cli.main import main
from harness.database.collect import collect, measure
from harness.database.migrate import check, migrate, repair
from harness.database.sharing import fetch_all, fetch_trees, share_store
from pytest_ssr.errors import DamagedTreeError
from pytest_ssr.project.snapshot import (
    STAGING,
    FileStamp,
    hash_of,
    is_complete,
    read_manifest,
    staging_folder,
    take_snapshot,
)
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.storage import tree_archives
from pytest_ssr.storage.shared_trees import path_of
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.tree_archives import archive_of, place_archive


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
    fetch_trees(other.root)
    tree = other.trees / snapshot.tree_hash
    assert is_complete(tree)
    assert read_manifest(tree) == snapshot.files
    assert (tree / "tree" / "run.sh").stat().st_mode & 0o100
    # A killed process may leave a part of it.
    (tree / "tree" / "a.py").unlink()
    fetch_trees(other.root)
    assert is_complete(tree)
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


@pytest.mark.parametrize("is_missing", [True, False])
def test_what_is_missing_or_damaged_is_written_again_by_a_machine_that_has_it(
    shared: list[Store], project: Path, is_missing: bool
) -> None:
    store, other = shared
    records, snapshot = records_of(store), take_snapshot(project, store.trees)
    store.put_artifact("i", artifact_of(snapshot.tree_hash))
    (store.root / "rollouts" / "k").mkdir(parents=True)
    (store.root / "rollouts" / "k" / "patch.diff").write_bytes(b"x")
    store.keep("rollouts/k")
    (store.root / "exports" / "k").mkdir(parents=True)
    (store.root / "exports" / "k" / "data.jsonl").write_bytes(b"{}")
    store.keep("exports/k")
    other.put_file("rollouts/k", "other.diff", b"y")
    lost = ["exports/k/data.jsonl", "rollouts/k/other.diff", "rollouts/k/patch.diff", path_of(snapshot.tree_hash)]
    for path in lost:
        digest = records.digests(path.rpartition("/")[0])[path]
        records.blobs.remove(digest)
        if not is_missing:
            records.blobs._write(digest, b"z")
    assert main(["store", "check", str(store.root)]) == 1
    found = check(store.root, records, progress=lambda line: None)
    assert sorted(found.missing if is_missing else found.damaged) == lost
    assert repair(store.root, records, found) == tuple(path for path in lost if "other" not in path)
    assert main(["store", "check", str(other.root), "--repair"]) == 0
    fetch_all(other.root)
    fetch_trees(other.root)
    assert is_complete(other.trees / snapshot.tree_hash)


def test_what_a_killed_process_has_written_of_a_tree_is_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    own = staging_folder(store.trees)
    ended = own.rename(own.with_name(f"{STAGING}{2**22 + 1}-x"))
    own.mkdir()
    Store(store.root)
    assert own.exists()
    assert not ended.exists()


def test_a_tree_that_is_not_here_or_was_changed_is_not_shared(shared: list[Store], project: Path) -> None:
    store = shared[0]
    snapshot = take_snapshot(project, store.trees)
    for name in ("0" * 40, "../../etc", None):
        assert not store.shared_trees.share(name)
    folder = store.trees / snapshot.tree_hash
    (folder / "tree" / "link").unlink()
    assert not store.shared_trees.share(snapshot.tree_hash)
    (folder / "tree" / "link").symlink_to("a.py")
    (folder / "tree" / "a.py").write_text("x = 2\n")
    assert not store.shared_trees.share(snapshot.tree_hash)
    (folder / "tree" / "a.py").write_text("x = 1\n")
    (folder / "manifest.json").write_text("{}")
    assert not store.shared_trees.share(snapshot.tree_hash)


def test_an_archive_of_something_else_leaves_out_its_artifacts_and_is_listed(
    shared: list[Store], project: Path
) -> None:
    store, other = shared
    snapshot = take_snapshot(project, store.trees)
    records_of(store).put({path_of(snapshot.tree_hash): archive(file("a.py"))})
    store.put_artifact("i", artifact_of(snapshot.tree_hash))
    store.put_artifact("k", artifact_of("0" * 40))
    fetch_all(other.root)
    fetch_trees(other.root)
    assert not (other.trees / snapshot.tree_hash).exists()
    assert other.artifact_ids() == ["i", "k"]
    found = check(store.root, records_of(store), progress=lambda line: None)
    assert (found.missing, found.damaged) == ((), (path_of(snapshot.tree_hash),))


Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes = b"x = 1\n", **fields: object) -> Member:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for field, value in fields.items():
        setattr(member, field, value)
    return member, data


def link(name: str, target: str) -> Member:
    return file(name, b"", type=tarfile.SYMTYPE, linkname=target)


def archive(*members: Member) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def headers(*members: Member) -> bytes:
    """Return an archive of headers whose content is missing."""
    return gzip.compress(b"".join(member.tobuf(tarfile.GNU_FORMAT) for member, _ in members) + bytes(1024))


def tree_of(**files: tuple[int, bytes]) -> str:
    """Return the hash of a tree that an attacker chooses, by paths with `__` for a slash."""
    stamps = {
        path.replace("__", "/"): FileStamp(mode, hashlib.sha256(data).hexdigest())
        for path, (mode, data) in files.items()
    }
    return hash_of(stamps)


LINK, PLAIN = 0o120000, 0o100644
ESCAPES: dict[str, Callable[[str], tuple[bytes, str]]] = {
    "a file that is a link in the end": lambda outside: (
        archive(file("a"), file("a/b"), link("a", outside)),
        tree_of(a=(LINK, outside.encode()), a__b=(PLAIN, b"x = 1\n")),
    ),
    "a file below a link": lambda outside: (
        archive(link("a", outside), file("a/b")),
        tree_of(a=(LINK, outside.encode()), a__b=(PLAIN, b"x = 1\n")),
    ),
    "the tree itself is a link": lambda outside: (
        archive(link(".", outside)),
        hash_of({".": FileStamp(LINK, hashlib.sha256(outside.encode()).hexdigest())}),
    ),
    "the parent": lambda outside: (
        archive(file("../../../outside/b")),
        hash_of({"../../../outside/b": FileStamp(PLAIN, hashlib.sha256(b"x = 1\n").hexdigest())}),
    ),
    "an absolute path": lambda outside: (
        archive(file(f"{outside}/b")),
        hash_of({f"{outside}/b": FileStamp(PLAIN, hashlib.sha256(b"x = 1\n").hexdigest())}),
    ),
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_an_archive_whose_hash_is_right_leads_nowhere_else(escape: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data, name = ESCAPES[escape](str(outside))
    with pytest.raises(DamagedTreeError):
        place_archive(data, tmp_path / "trees", name)
    assert os.listdir(outside) == []
    assert not (tmp_path / "trees").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an archive",
        archive(file("a.py"))[:40],
        archive(file("a.py"), file("more.py", b"")),
        archive(file("a.py"), file("a.py")),
        archive(file("a.py"), file("a.py/b")),
        archive(file("a.py", pax_headers={"path": "a\0b"})),
        archive(file("n" * 256)),
        archive(link("a.py", "")),
        archive(file("a.py", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd")),
        archive(file("a.py", b"", type=tarfile.CHRTYPE)),
        archive(file("a.py", b"", type=tarfile.FIFOTYPE)),
        archive(file("a.py", b"", type=tarfile.DIRTYPE)),
        # Sizes that are read into memory, written as zeros, or lead back to the same header.
        headers(file("a.py", size=1 << 40)),
        headers(file("a.py", size=-512)),
        headers(file("a.py", size=1 << 32, type=tarfile.GNUTYPE_SPARSE)),
        headers(file("a.py", size=1 << 30, type=tarfile.XHDTYPE), file("a.py", b"")),
        headers(file("a.py", size=1 << 30, type=tarfile.GNUTYPE_LONGNAME), file("a.py", b"")),
    ],
    # Archives hold the time of their making, which must not be a part of a test's name.
    ids=range(18),
)
def test_an_archive_that_holds_something_else_is_refused(data: bytes, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("x = 1\n")
    name = hash_of(take_snapshot(project, tmp_path / "original").files)
    with pytest.raises(DamagedTreeError):
        place_archive(data, tmp_path / "trees", name)
    assert not (tmp_path / "trees").exists()
    place_archive(archive(file("a.py", mode=0o4666, uid=0)), tmp_path / "trees", name)
    assert is_complete(tmp_path / "trees" / name)
    assert (tmp_path / "trees" / name / "tree" / "a.py").stat().st_mode & 0o7777 == 0o644


def test_archives_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_archives, "MAX_SNAPSHOT_BYTES", 1 << 20)
    monkeypatch.setattr(tree_archives, "MAX_FILES", 3)
    zeros = bytes(600 << 10)
    for data in (archive(file("a", zeros), file("b", zeros)), archive(*(file(name) for name in "abcd"))):
        with pytest.raises(DamagedTreeError):
            place_archive(data, tmp_path / "trees", "0" * 40)
