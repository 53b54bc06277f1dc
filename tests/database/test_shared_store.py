"""A store with a database behaves as a folder does, for several processes and machines at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
import sqlalchemy as sa
from small_artifact import ARTIFACT

from harness.database.engine import close_engines, database_url, open_engine
from harness.database.events import events_after
from harness.database.records import records_of
from harness.database.schema import artifacts, entries
from harness.database.sharing import share_store
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreError, StoreWriteError
from pytest_ssr.storage.store import Store, resolve_artifact


def test_what_one_machine_writes_another_reads(shared):
    one, two = shared
    one.put_record("rollouts/k", "rollout", {"a": 1})
    one.put_file("rollouts/k", "patch.diff", b"\x00\xff")
    assert two.record("rollouts/k", "rollout") == {"a": 1}
    assert two.file("rollouts/k", "patch.diff") == b"\x00\xff"
    assert [p.name for p in two.fetch("rollouts/k")] == ["patch.diff", "rollout.json"]
    two.remove_record("rollouts/k", "rollout")
    assert one.record("rollouts/k", "rollout") is None


def test_a_changed_record_is_read_as_it_is_now(shared):
    one, two = shared
    one.put_record("rollouts/k", "rollout", {"a": 1})
    two.fetch("rollouts/k")
    one.put_record("rollouts/k", "rollout", {"a": 2})
    assert two.record("rollouts/k", "rollout") == {"a": 2}
    assert json.loads(two.fetch("rollouts/k")[0].read_bytes()) == {"a": 2}


def test_artifacts_are_published_and_set_aside_everywhere(shared):
    one, two = shared
    one.put_artifact("i", ARTIFACT)
    assert two.artifact_ids() == ["i"]
    assert two.artifact("i") == ARTIFACT
    one.make_spare("i")
    assert two.artifact_ids() == []
    assert two.has_artifact("i")
    two.publish("i")
    assert resolve_artifact("i", one).is_dir()
    assert one.artifact_ids() == ["i"]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_an_artifact_that_another_run_publishes_meanwhile_is_there_once(shared, is_elsewhere, monkeypatch):
    one, two = shared
    other = two if is_elsewhere else Store(one.root)
    share = one.shared_trees.share

    def publish_meanwhile(tree_hash):
        other.put_artifact("i", ARTIFACT, spare=True)
        other.publish("i")
        return share(tree_hash)

    monkeypatch.setattr(one.shared_trees, "share", publish_meanwhile)
    assert one.put_artifact("i", ARTIFACT, spare=True) == one.root / "artifacts" / "i"
    assert not list(one.root.glob("spare/*"))
    records = records_of(one.root)
    assert records.digests("spare") == {}
    with records.engine.connect() as connection:
        assert connection.scalars(sa.select(artifacts.c.kind)).all() == ["artifacts"]


def test_of_two_copies_of_an_artifact_the_moved_one_goes(shared):
    one, two = shared
    one.put_artifact("i", ARTIFACT, spare=True)
    two.put_artifact("i", ARTIFACT)
    one.publish("i")
    assert records_of(one.root).digests("spare") == {}
    assert not (one.root / "spare" / "i").exists()
    assert one.artifact("i") == ARTIFACT


def test_a_path_in_the_database_leads_out_of_no_folder(shared):
    one, two = shared
    one.put_file("rollouts/k", "patch.diff", b"x")
    with records_of(one.root).engine.begin() as connection:
        connection.execute(sa.update(entries).where(entries.c.kind == "rollouts").values(path="rollouts/../../x"))
    with pytest.raises(StoreError):
        two.fetch("rollouts")
    assert not (two.root.parent / "x").exists()


def test_an_artifact_whose_run_was_killed_before_it_was_shared_is_shared_by_the_next(shared, monkeypatch):
    one, two = shared

    def killed(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(one, "keep", killed)
    with pytest.raises(KeyboardInterrupt):
        one.put_artifact("i", ARTIFACT)
    monkeypatch.undo()
    assert not one.has_artifact("i")
    one.put_artifact("i", ARTIFACT)
    assert two.artifact("i") == ARTIFACT


def test_a_journal_that_another_process_is_writing_is_not_replaced(shared, database):
    one, two = shared
    one.put_file("rollouts/k", "trajectory.jsonl", b"aborted")
    two.fetch("rollouts/k")
    path = two.root / "rollouts" / "k" / "trajectory.jsonl"
    path.write_bytes(b"again")
    reader = Store(two.root)
    with two.alone("k"):
        reader.fetch("rollouts")
        assert path.read_bytes() == b"again"
        two.fetch("rollouts/k")
        assert path.read_bytes() == b"aborted"


def test_the_plugin_finds_artifacts_in_the_database(shared, tmp_path):
    one, two = shared
    one.put_artifact("i" * 20, ARTIFACT)
    (tmp_path / "pytest.ini").touch()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "--ssr-sandbox",
        "process",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--ssr-solve", "iii", "--ssr-store", str(two.root)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "does not exist" not in done.stdout + done.stderr
    assert (two.root / "artifacts" / ("i" * 20)).is_dir()


def test_caches_stay_on_their_machine(shared):
    one, two = shared
    one.put_record("baselines", "b", {"a": 1})
    assert two.record("baselines", "b") is None


def test_each_change_is_an_event_in_order(shared):
    one, _ = shared
    one.put_artifact("i", ARTIFACT)
    with records_of(one.root).engine.connect() as connection:
        events = events_after(connection, 0)
    assert [(e.kind, e.subject) for e in events] == [("artifact", "i")]
    assert events[0].data["operator"] == "o"


_WRITER = """
import sys
from pathlib import Path
from pytest_ssr.storage.store import Store
store, name = Store(Path(sys.argv[1])), sys.argv[2]
for n in range(int(sys.argv[3])):
    store.put_file(f"rollouts/{name}-{n}", "patch.diff", f"{name} {n}".encode())
    store.put_record(f"rollouts/{name}-{n}", "rollout", {"n": n})
    print(n, flush=True)
"""


def _writer(store: Store, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(store.root), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())


def test_several_writers_lose_nothing(shared):
    writers = [_writer(shared[i % 2], f"w{i}", 15) for i in range(4)]
    assert [w.communicate()[0].split()[-1] for w in writers] == ["14"] * 4
    paths = records_of(shared[0].root).digests("rollouts")
    assert len(paths) == 4 * 15 * 2


def test_what_a_killed_writer_reported_is_there(shared):
    writer = _writer(shared[0], "w", 10_000)
    seen = [writer.stdout.readline() for _ in range(8)]
    writer.send_signal(signal.SIGKILL)
    seen += writer.communicate()[0].splitlines()
    # The last line may be cut, and its write was finished all the same.
    last = max(int(line) for line in seen if line.strip())
    assert all(shared[1].record(f"rollouts/w-{n}", "rollout") == {"n": n} for n in range(last))
    assert all(shared[1].file(f"rollouts/w-{n}", "patch.diff") == f"w {n}".encode() for n in range(last))


_HOLDER = """
import sys, time
from pathlib import Path
from pytest_ssr.storage.store import Store
with Store(Path(sys.argv[1])).alone("n"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_ends_with_its_process(shared, database):
    store = shared[0]
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(store.root)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    # Machines that share PostgreSQL take turns; SQLite is for one machine, whose lock is in the folder.
    other = shared[1] if database != "sqlite" else Store(store.root)
    begin = time.monotonic()
    holder.kill()
    holder.communicate()
    with other.alone("n"):
        assert time.monotonic() - begin < 60


def test_a_database_that_is_down_is_one_error(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as caught:
        share_store(tmp_path / "s", database="postgresql://ssr:secret@127.0.0.1:9/none")
    assert "secret" not in str(caught.value)
    assert Store(tmp_path / "s").artifact_ids() == []


def test_other_databases_are_refused(tmp_path):
    for address in ("mysql://h/n", "no url"):
        with pytest.raises(SettingsError):
            share_store(tmp_path / "s", database=address)


def test_a_store_keeps_its_database(tmp_path):
    share_store(tmp_path)
    with pytest.raises(SettingsError):
        share_store(tmp_path, database="sqlite:////other.db")


def test_a_database_of_a_newer_release_is_refused(tmp_path):
    share_store(tmp_path)
    with open_engine(database_url("sqlite", tmp_path)).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    close_engines()
    with pytest.raises(StoreError):
        Store(tmp_path)


def test_an_interrupted_migration_is_made_again(tmp_path, monkeypatch):
    from harness.database import engine as engine_module

    url = database_url("sqlite", tmp_path)
    upgrade = engine_module.command.upgrade

    def interrupted(config, revision):
        upgrade(config, revision)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_module.command, "upgrade", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_engine(url, create=True)
    with sqlite3.connect(tmp_path / "ssr.db") as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == []
    monkeypatch.undo()
    assert "entries" in sa.inspect(open_engine(url, create=True)).get_table_names()


def test_blobs_that_cannot_be_written_are_one_error(tmp_path):
    store = share_store(tmp_path / "s", blobs=str(tmp_path / "blobs"))
    shutil.rmtree(tmp_path / "blobs")
    (tmp_path / "blobs").write_text("")
    with pytest.raises(StoreWriteError):
        store.put_file("rollouts/k", "patch.diff", b"x")
    assert store.file("rollouts/k", "patch.diff") is None


def test_tables_are_those_of_the_migrations(database, tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from harness.database.schema import METADATA

    with open_engine(database_url(database, tmp_path), create=True).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_without_the_packages_a_store_with_a_database_is_one_error(tmp_path, monkeypatch):
    from harness.database import sharing

    share_store(tmp_path)
    monkeypatch.setattr(sharing, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError):
        sharing.connect(tmp_path, sharing.description_of(tmp_path))
