"""What a store with a database keeps when writers, disks, databases and object stores fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import sqlalchemy as sa
from shared_stores import MakeStore, execute, records_of

from harness.database import engine as engines
from harness.database.engine import close_engines
from harness.database.migrate import check, migrate
from harness.database.sharing import share_store
from pytest_ssr.errors import StoreError, StoreWriteError
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.storage.store import Store

_WRITER = """
import sys
from pathlib import Path
from pytest_ssr.storage.store import Store

store, name, count = Store(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for n in range(count):
    store.put_record(f"attempts/{name}", f"{n:05}", {"n": n})
    store.put_file(f"rollouts/{name}-{n}", "patch.diff", b"%d" % (n // 2))
    store.put_record("wanted", "shared", {"by": name})
    print(n, flush=True)
"""
_FULL = """
import resource, sys
from pathlib import Path
from pytest_ssr.errors import StoreWriteError
from pytest_ssr.storage.store import Store

store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    store._shared.put({"rollouts/big/patch.diff": bytes(2 << 20)})
except StoreWriteError:
    sys.exit(3)
"""
_LARGE_WRITER = """
import itertools, sys
from pathlib import Path
from pytest_ssr.storage.store import Store

store = Store(Path(sys.argv[1]))
for n in itertools.count():
    name = f"{n:04}-{id(store):016}"
    store.put_file(f"rollouts/{name}", "patch.diff", name.encode()[:16] + bytes((16 << 20) - 16))
    print(name, flush=True)
"""
_LARGE = 16 << 20
_WRITERS = 8


def is_healthy(store: Store) -> bool:
    found = check(store.root, records_of(store), progress=lambda _: None)
    return not (found.missing or found.damaged)


def writer(store: Store, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(store.root), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def fill(store: Store, stored: list[int]) -> None:
    for n in range(100):
        store.put_file(f"rollouts/{n}", "patch.diff", b"%03d" % n * 50_000)
        stored.append(n)


def test_eight_processes_write_at_once(tmp_path: Path, database: str) -> None:
    # Blobs are in the folder: the packages for S3 take seconds to import in each process.
    shared_store = share_store(tmp_path / "store", database=database)
    running = [writer(shared_store, f"w{n}", 3) for n in range(_WRITERS)]
    for process in running:
        process.communicate(timeout=120)
    assert [process.returncode for process in running] == [0] * _WRITERS
    assert len(records_of(shared_store).digests("attempts")) == 3 * _WRITERS
    assert len(records_of(shared_store).digests("rollouts")) == 3 * _WRITERS
    assert shared_store.record("wanted", "shared") is not None
    assert is_healthy(shared_store)


def test_a_full_database_is_reported_and_keeps_what_it_has(make_store: MakeStore) -> None:
    store = make_store("sqlite")
    store.put_record("wanted", "before", {})
    engine = records_of(store).engine

    def limit(connection: sa.Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    sa.event.listen(engine, "begin", limit)
    with pytest.raises(StoreWriteError):
        store.put_record("wanted", "large", {"text": "x" * 1_000_000})
    sa.event.remove(engine, "begin", limit)
    engine.dispose()
    assert store.record("wanted", "before") == {}
    store.put_record("wanted", "after", {})
    assert is_healthy(store)


def test_a_file_that_does_not_fit_is_reported_and_has_no_row(make_store: MakeStore) -> None:
    store = make_store("sqlite")
    done = subprocess.run([sys.executable, "-c", _FULL, str(store.root)], timeout=60)
    assert done.returncode == 3
    assert records_of(store).digests("rollouts") == {}
    assert [p for p in (store.root / "blobs").rglob("*") if p.is_file()] == []


def test_a_database_that_is_down_is_reported_and_works_again(make_store: MakeStore, postgres_url: str) -> None:
    store = make_store("postgres")
    name, admin = records_of(store).engine.url.database, f"{postgres_url}/postgres"
    store.put_record("wanted", "before", {})
    execute(admin, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    execute(admin, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    with pytest.raises(StoreWriteError):
        store.put_record("wanted", "during", {})
    with pytest.raises(StoreError):
        store.record("wanted", "before")
    execute(admin, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    # The same object goes on, with new connections.
    assert store.record("wanted", "before") == {}
    assert store.record("wanted", "during") is None
    store.put_record("wanted", "after", {})


def test_an_object_store_that_refuses_is_reported_and_nothing_is_recorded(tmp_path: Path, s3: str) -> None:
    bucket = f"{s3}-gone"
    system = fsspec.filesystem("s3")
    system.mkdir(bucket)
    store = share_store(tmp_path / "store", blobs=f"{bucket}/x")
    system.rm(bucket, recursive=True)
    with pytest.raises(StoreWriteError):
        store.put_file("rollouts/a", "patch.diff", b"1")
    assert records_of(store).digests("rollouts") == {}


def test_a_migration_of_results_goes_on_after_an_interruption(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("folder")
    for n in range(5):
        store.put_record("wanted", f"{n}", {})
        store.put_file(f"rollouts/r{n}", "patch.diff", b"%d" % n)
    planned = migrate(store.root, None, dry_run=True, progress=lambda _: None)
    shared = share_store(store.root)
    records = records_of(shared)
    put_folder, calls = records.put_folder, []

    def interrupted(folder: Path, files: dict[str, Path]) -> None:
        calls.append(folder)
        if len(calls) > 3:
            raise KeyboardInterrupt
        put_folder(folder, files)

    monkeypatch.setattr(records, "put_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        migrate(store.root, records, progress=lambda _: None)
    monkeypatch.undo()
    rest = migrate(store.root, records, progress=lambda _: None)
    assert (rest.present, rest.files) == (3, 7)
    assert rest.present + rest.files == planned.files == 10
    assert is_healthy(shared)
    assert check(store.root, records, progress=lambda _: None).unshared == ()


def test_tables_are_migrated_completely_or_not_at_all(shared_store: Store) -> None:
    engine = records_of(shared_store).engine
    _drop_tables(engine)
    statements = 0

    def fail(*_: object) -> None:
        nonlocal statements
        statements += 1
        if statements == 12:
            raise KeyboardInterrupt

    sa.event.listen(engine, "before_cursor_execute", fail)
    with pytest.raises(KeyboardInterrupt):
        engines.upgrade(engine)
    sa.event.remove(engine, "before_cursor_execute", fail)
    assert sa.inspect(engine).get_table_names() == []
    engines.upgrade(engine)
    shared_store.put_record("wanted", "x", {})


def _drop_tables(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    metadata.reflect(engine)
    metadata.drop_all(engine)


def test_what_a_killed_writer_has_reported_is_complete(make_store: MakeStore) -> None:
    store = make_store("sqlite")
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _LARGE_WRITER, str(store.root)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        reported = [process.stdout.readline().strip() for _ in range(2)]
        # It is writing the next file of 16 MB now.
        process.kill()
        process.communicate()
        for name in filter(None, reported):
            data = Store(store.root).file(f"rollouts/{name}", "patch.diff")
            assert data is not None
            assert (len(data), data[:16]) == (_LARGE, name.encode()[:16])
        assert is_healthy(Store(store.root))


def test_large_files_are_kept_by_each_store(store: Store) -> None:
    data = bytes(range(256)) * (_LARGE // 256)
    store.put_file("rollouts/a", "patch.diff", data)
    store.put_file("attempts/a", "00001.json", b'"' + b"x" * _LARGE + b'"')
    folder = store.root / "rollouts" / "b"
    folder.mkdir()
    (folder / "trajectory.jsonl").write_bytes(data)
    store.keep("rollouts/b")
    assert store.file("rollouts/a", "patch.diff") == store.file("rollouts/b", "trajectory.jsonl") == data
    found = store.file("attempts/a", "00001.json")
    assert found is not None
    assert len(found) == _LARGE + 2


@pytest.mark.parametrize("statement", ["INSERT INTO entries", "INSERT INTO candidates", "INSERT INTO events"])
def test_a_connection_that_breaks_in_the_middle_of_a_write_stores_nothing(
    make_store: MakeStore, postgres_url: str, statement: str
) -> None:
    store = make_store("postgres")
    engine = records_of(store).engine
    candidate = CandidateResult(0, CandidateStatus.VALID, "s", "o", "p", 1, "f", "", "").to_json()
    store.put_record("attempts/c", "before", candidate)

    def break_connections(*args: object) -> None:
        if str(args[2]).startswith(statement):
            name = engine.url.database
            execute(
                f"{postgres_url}/postgres",
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
            )

    # After the last statement, so that the commit fails, too.
    sa.event.listen(engine, "after_cursor_execute", break_connections)
    with pytest.raises(StoreWriteError):
        store.put_record("attempts/c", "during", candidate)
    sa.event.remove(engine, "after_cursor_execute", break_connections)
    assert store.record("attempts/c", "during") is None
    assert store.record("attempts/c", "before") == candidate
    store.put_record("attempts/c", "during", candidate)
    assert store.record("attempts/c", "during") == candidate


def test_an_object_store_that_fails_in_the_middle_is_reported(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("postgres")
    store.put_file("rollouts/a", "patch.diff", b"1")
    system = records_of(store).blobs._system

    def refuse(*_: object, **__: object) -> bytes:
        raise ConnectionError("the server has gone")

    monkeypatch.setattr(system, "pipe_file", refuse)
    monkeypatch.setattr(system, "cat_file", refuse)
    with pytest.raises(StoreWriteError):
        store.put_file("rollouts/b", "patch.diff", b"2")
    with pytest.raises(StoreError):
        store.file("rollouts/a", "patch.diff")
    monkeypatch.undo()
    assert store.file("rollouts/a", "patch.diff") == b"1"
    assert store.file("rollouts/b", "patch.diff") is None


def test_a_full_disk_is_reported_and_keeps_what_was_stored(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("only root can mount a small file system")
    try:
        store = share_store(disk / "store")
        stored: list[int] = []
        with pytest.raises(StoreWriteError):
            fill(store, stored)
        assert stored
        for n in stored:
            assert store.file(f"rollouts/{n}", "patch.diff") == b"%03d" % n * 50_000
        assert set(records_of(store).digests("rollouts")) == {f"rollouts/{n}/patch.diff" for n in stored}
        # Whatever is missing now is the copy that was not stored.
        assert is_healthy(store)
        close_engines()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
