"""What a store promises, on a folder, on SQLite, and on PostgreSQL with S3."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.model import Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.storage.shared import DURABLE
from pytest_ssr.storage.store import Store

_DIFF = b"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
_ARTIFACT = BugArtifact(b"", ("test_calc.py",), b"", Patch.parse(_DIFF), Patch.parse(b""))
_ID = "a" * 20


def another_machine(store: Store) -> Store:
    """Open a store as a machine that has none of its files does; a folder has no other machine."""
    if store._shared is None:
        return Store(store.root)
    for kind in DURABLE:
        shutil.rmtree(store.root / kind, ignore_errors=True)
    return Store(store.root)


def test_a_record_is_replaced_and_removed(store: Store) -> None:
    store.put_record("attempts/run", "00001", {"a": 1})
    store.put_record("attempts/run", "00001", {"a": "é\0"})
    assert another_machine(store).record("attempts/run", "00001") == {"a": "é\0"}
    store.remove_record("attempts/run", "00001")
    store.remove_record("attempts/run", "00001")
    assert store.record("attempts/run", "00001") is None


def test_a_file_is_returned_as_it_was_written(store: Store) -> None:
    data = bytes(range(256)) * 5000
    store.put_file("rollouts/r1", "patch.diff", data)
    store.put_file("rollouts/r1", "empty.diff", b"")
    other = another_machine(store)
    assert other.file("rollouts/r1", "patch.diff") == data
    assert other.file("rollouts/r1", "empty.diff") == b""
    assert other.file("rollouts/r1", "none.diff") is None
    assert [p.name for p in other.fetch("rollouts/r1")] == ["empty.diff", "patch.diff"]


def test_kept_files_replace_earlier_ones(store: Store) -> None:
    folder = store.root / "rollouts" / "r2"
    folder.mkdir(parents=True)
    for text in ("first", "second, longer"):
        (folder / "trajectory.jsonl").unlink(missing_ok=True)
        (folder / "trajectory.jsonl").write_text(text)
        store.keep("rollouts/r2")
    assert another_machine(store).file("rollouts/r2", "trajectory.jsonl") == b"second, longer"


def test_folders_with_names_that_begin_alike_are_apart(store: Store) -> None:
    for folder in ("r", "r-2", "r0", "rr"):
        store.put_file(f"rollouts/{folder}", "patch.diff", folder.encode())
    assert [p.parent.name for p in another_machine(store).fetch("rollouts/r")] == ["r"]


def test_an_artifact_is_set_aside_and_published(store: Store) -> None:
    store.put_artifact(_ID, _ARTIFACT)
    store.put_artifact(_ID, _ARTIFACT)
    store.make_spare(_ID)
    other = another_machine(store)
    assert (other.artifact_ids(), other.has_artifact(_ID)) == ([], True)
    other.publish(_ID)
    # One that was published stays.
    other.make_spare(_ID)
    last = another_machine(store)
    assert last.artifact_ids() == [_ID]
    assert last.artifact(_ID) == _ARTIFACT


def test_an_artifact_that_does_not_exist_is_an_error(store: Store) -> None:
    assert not store.has_artifact("f" * 20)
    with pytest.raises(ArtifactError):
        store.artifact("f" * 20)


def test_a_store_opens_from_a_relative_path(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_record("wanted", "a", {})
    monkeypatch.chdir(store.root.parent)
    assert Store(Path(store.root.name)).record("wanted", "a") == {}
