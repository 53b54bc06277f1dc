"""What `ssr store gc` removes, and what it never does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared_stores import MakeStore, execute, records_of

from harness.cli.main import main
from harness.database import collect as collect_module
from harness.database.collect import EVENTS_KEPT_S, Collection, collect, measure
from harness.database.events import add_event, last_event
from harness.database.migrate import check
from harness.database.records import DatabaseRecords
from harness.database.schema import events
from harness.database.sharing import share_store
from pytest_ssr.errors import StoreError
from pytest_ssr.storage.store import Store


def gc(store: Store, *, grace_s: float = 0, dry_run: bool = False) -> Collection:
    # A clock of an object store has whole seconds, and may be ahead by a part of one.
    grace_s = grace_s or -2
    return collect(records_of(store), grace_s=grace_s, dry_run=dry_run, progress=lambda _: None)


def test_files_that_nothing_refers_to_are_removed(shared_store: Store) -> None:
    records = records_of(shared_store)
    shared_store.put_file("rollouts/a", "patch.diff", b"old")
    shared_store.put_file("rollouts/a", "patch.diff", b"replaced")
    shared_store.put_file("rollouts/b", "patch.diff", b"replaced")
    shared_store.put_record("wanted", "x", {})
    orphan = records.blobs.put(b"a writer was killed before its row")
    assert gc(shared_store, grace_s=3600).recent == 2
    assert gc(shared_store, dry_run=True).blobs == 2
    assert orphan in records.blobs.sizes()
    done = gc(shared_store)
    assert (done.blobs, done.bytes) == (2, 3 + 34)
    assert len(records.blobs.sizes()) == 1
    assert shared_store.file("rollouts/b", "patch.diff") == b"replaced"
    assert gc(shared_store) == Collection(0, 0, 0, 0, 0)


def test_a_file_that_was_collected_before_its_row_is_written_again(
    shared_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = records_of(shared_store).blobs
    put, put_file = blobs.put, blobs.put_file

    def put_and_lose(data: bytes) -> str:
        digest = put(data)
        blobs.remove(digest)
        return digest

    def put_file_and_lose(path: Path) -> tuple[str, int]:
        digest, size = put_file(path)
        blobs.remove(digest)
        return digest, size

    monkeypatch.setattr(blobs, "put", put_and_lose)
    monkeypatch.setattr(blobs, "put_file", put_file_and_lose)
    shared_store.put_file("rollouts/a", "patch.diff", b"one")
    folder = shared_store.root / "rollouts" / "b"
    folder.mkdir()
    (folder / "trajectory.jsonl").write_bytes(b"two")
    shared_store.keep("rollouts/b")
    assert shared_store.file("rollouts/a", "patch.diff") == b"one"
    assert shared_store.file("rollouts/b", "trajectory.jsonl") == b"two"


def test_writers_lose_nothing_to_a_collection_that_runs_beside_them(shared_store: Store) -> None:
    ended = threading.Event()
    failures: list[BaseException] = []

    def collect_all() -> None:
        try:
            while not ended.is_set():
                gc(shared_store)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=collect_all)
    thread.start()
    until = time.monotonic() + 2
    count = 0
    try:
        while time.monotonic() < until or count < 6:
            # The same contents come and go, so that each is often unused when it is needed again.
            data = b"%d" % (count % 3)
            shared_store.put_file("rollouts/a", "patch.diff", data)
            assert shared_store.file("rollouts/a", "patch.diff") == data
            count += 1
    finally:
        ended.set()
        thread.join()
    assert not failures


def test_a_file_that_is_referred_to_since_it_was_listed_stays(
    shared_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(shared_store)
    digest = records.blobs.put(b"1")
    remove_unused = collect_module._remove_unused

    def refer_and_remove(records: DatabaseRecords, digests: Sequence[str]) -> list[str]:
        shared_store.put_file("rollouts/a", "patch.diff", b"1")
        return remove_unused(records, digests)

    monkeypatch.setattr(collect_module, "_remove_unused", refer_and_remove)
    assert gc(shared_store).blobs == 0
    assert list(records.blobs.sizes()) == [digest]


def test_nothing_is_removed_after_the_database_has_ended_the_transaction(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    store = make_store("postgres")
    records = records_of(store)
    for data in (b"1", b"2"):
        records.blobs.put(data)
    remove, name = records.blobs.remove, records.engine.url.database

    def remove_slowly(digest: str) -> None:
        remove(digest)
        # As PostgreSQL does by itself, when an object store takes minutes.
        statement = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        execute(f"{postgres_url}/postgres", statement)

    monkeypatch.setattr(records.blobs, "remove", remove_slowly)
    with pytest.raises(StoreError):
        gc(store)
    assert len(records.blobs.sizes()) == 1


def test_files_of_killed_writers_are_removed_when_they_are_old(make_store: MakeStore) -> None:
    store = make_store("sqlite")
    for name, age_s in ((".deadbeef-1", 7200), (".deadbeef-2", 0)):
        path = Path(records_of(store).blobs._at("deadbeef")).parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age_s,) * 2)
    assert gc(store).unfinished == 1
    assert [p.name for p in path.parent.iterdir()] == [".deadbeef-2"]


def test_old_events_are_removed_but_the_last(shared_store: Store) -> None:
    engine = records_of(shared_store).engine
    with engine.begin() as connection:
        for n in range(3):
            add_event(connection, "round", str(n), {})
        last = last_event(connection)
        connection.execute(sa.update(events).values(created_at=time.time() - 2 * EVENTS_KEPT_S))
    assert gc(shared_store, dry_run=True).events == 2
    assert gc(shared_store).events == 2
    with engine.connect() as connection:
        assert connection.scalars(sa.select(events.c.id)).all() == [last]


def test_sizes_are_those_of_the_files(store: Store) -> None:
    store.put_file("rollouts/a", "patch.diff", b"12345")
    store.put_record("wanted", "x", {})
    records = records_of(store) if store._shared is not None else None
    sizes = measure(store.root, records)
    found = {part.name: (part.files, part.bytes) for part in sizes.results if part.files}
    assert found == {"rollouts": (1, 5), "wanted": (1, 3)}
    assert (sizes.blobs is not None and sizes.blobs.files == 1) == (records is not None)
    assert (sizes.database_bytes > 0) == (records is not None)


def test_the_commands_end_with_the_documented_codes(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store("sqlite")
    store.put_file("rollouts/a", "patch.diff", b"12345")
    root = str(store.root)
    assert [main(["store", name, root, "--json"]) for name in ("gc", "size", "check")] == [0, 0, 0]
    for path in (store.root / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    assert main(["store", "check", root, "--json"]) == 1
    assert main(["store", "gc", str(tmp_path / "none")]) == 2
    assert main(["store", "gc", str(make_store("folder").root)]) == 2


def test_a_damaged_file_is_found(shared_store: Store) -> None:
    records = records_of(shared_store)
    shared_store.put_file("rollouts/a", "patch.diff", b"12345")
    (digest,) = records.blobs.sizes()
    records.blobs._write(digest, b"54321")
    found = check(shared_store.root, records, progress=lambda _: None)
    assert (found.missing, found.damaged) == ((), ("rollouts/a/patch.diff",))


def test_a_part_that_cannot_be_reached_is_an_error_and_nothing_is_taken_for_lost(
    shared_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(shared_store)
    shared_store.put_file("rollouts/a", "patch.diff", b"12345")

    def refuse(*_: object, **__: object) -> bytes:
        raise ConnectionError("the server has gone")

    monkeypatch.setattr(records.blobs._system, "cat_file", refuse)
    with pytest.raises(StoreError):
        check(shared_store.root, records, progress=lambda _: None)


def test_what_a_run_replaces_or_removes_during_a_check_is_not_taken_for_lost(
    shared_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(shared_store)
    shared_store.put_record("wanted", "a", {})
    shared_store.put_record("wanted", "b", {})
    inspect = records.inspect

    def change_and_inspect(path: str) -> tuple[str, bytes | None] | None:
        shared_store.put_record("wanted", "a", {"n": 1})
        shared_store.remove_record("wanted", "b")
        return inspect(path)

    monkeypatch.setattr(records, "inspect", change_and_inspect)
    found = check(shared_store.root, records, progress=lambda _: None)
    assert (found.missing, found.damaged) == ((), ())


def test_stores_with_the_same_blobs_do_not_collect_each_others_files(tmp_path: Path) -> None:
    one, two = (share_store(tmp_path / name, blobs=str(tmp_path / "blobs")) for name in ("one", "two"))
    for store in (one, two):
        store.put_file("rollouts/a", "patch.diff", b"12345")
    one.put_file("rollouts/a", "patch.diff", b"another")
    assert gc(one).blobs == 1
    assert gc(two).blobs == 0
    assert two.file("rollouts/a", "patch.diff") == b"12345"


def test_a_collection_with_the_database_of_another_store_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = share_store(tmp_path / "one"), share_store(tmp_path / "two")
    one.put_file("rollouts/a", "patch.diff", b"12345")
    monkeypatch.setenv("SSR_DATABASE", f"sqlite:///{two.root}/ssr.db")
    assert gc(Store(one.root)).blobs == 0
    monkeypatch.delenv("SSR_DATABASE")
    assert Store(one.root).file("rollouts/a", "patch.diff") == b"12345"
