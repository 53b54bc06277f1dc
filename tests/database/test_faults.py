"""What a store with a database keeps when writers, disks, databases and object stores fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import sqlalchemy as sa
from shared_stores import MakeStore, execute, records_of

from harness.database import engine as engines
from harness.database.migrate import check, migrate
from harness.database.sharing import share_store
from pytest_ssr.errors import StoreError, StoreWriteError
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
_WRITERS = 8


def is_healthy(store: Store) -> bool:
    found = check(store.root, records_of(store), progress=lambda _: None)
    return not (found.missing or found.damaged)


def writer(store: Store, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(store.root), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


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
