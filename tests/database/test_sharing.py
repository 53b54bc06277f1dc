"""How a store gets its database and blobs, and what happens if they are unusable, wrong or lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from shared_stores import records_of

from harness.cli.main import main
from harness.database import engine as engines
from harness.database.blobs import Blobs
from harness.database.engine import close_engines, database_url, describing, shown
from harness.database.sharing import description_of, has_database, share_store
from pytest_ssr.errors import SettingsError, StoreError, StoreWriteError
from pytest_ssr.storage.store import Store


def test_a_store_keeps_its_database_and_blobs_unless_others_are_named(tmp_path: Path) -> None:
    root, blobs = tmp_path / "s", str(tmp_path / "b")
    database = f"sqlite:///{tmp_path}/x.db"
    share_store(root, database=database, blobs=blobs)
    share_store(root)
    share_store(root, blobs=blobs)
    for other in ({"database": "sqlite"}, {"blobs": str(tmp_path / "c")}):
        with pytest.raises(SettingsError):
            share_store(root, **other)
    assert main(["store", "migrate", str(root), "--json"]) == 0
    assert description_of(root) == {"store_version": 1, "database": database, "blobs": blobs}


def test_relative_addresses_mean_the_same_in_every_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = share_store(Path("s"), database="sqlite:///x.db", blobs="b")
    store.put_file("rollouts/a", "patch.diff", b"1")
    close_engines()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Store(tmp_path / "s").file("rollouts/a", "patch.diff") == b"1"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_relative_address_in_the_file_of_a_store_is_refused(tmp_path: Path) -> None:
    Store(tmp_path)
    (tmp_path / "ssr-store.json").write_text('{"store_version": 1, "database": "sqlite:///x.db", "blobs": ""}')
    with pytest.raises(SettingsError):
        Store(tmp_path)


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///:memory:", "postgresql://u:p@ss@h/n", "postgresql://h:x/n"]
)
def test_unusable_addresses_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(SettingsError) as caught:
        share_store(tmp_path / "s", database=address)
    assert "ss@h" not in str(caught.value)
    assert not has_database(tmp_path / "s")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:secret%401@127.0.0.1:9/n",
        "postgresql://u@127.0.0.1:9/n?password=secret%401&sslpassword=secret%401",
    ],
)
def test_passwords_are_in_no_message(tmp_path: Path, address: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as caught:
        share_store(tmp_path / "s", database=address)
    url = database_url(address, tmp_path)
    assert "secret" not in str(caught.value) + shown(url)


def test_a_password_in_the_message_of_a_driver_is_hidden(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    from sqlalchemy.exc import OperationalError

    url = database_url("postgresql://u:secret@h/n?password=another", tmp_path)
    with pytest.raises(StoreError) as caught, describing(url):
        raise OperationalError("", {}, ValueError("wrong: secret or another"))
    assert "secret" not in str(caught.value)
    assert "another" not in str(caught.value)


def test_keys_in_the_address_of_blobs_are_in_no_message(tmp_path: Path, s3: str) -> None:
    address = f"s3://key:secret/1@{s3.removeprefix('s3://')}/x?token=hidden"
    assert "secret" not in Blobs(address, tmp_path, "o").shown
    with pytest.raises(StoreError) as caught:
        share_store(tmp_path / "s", blobs=address)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.usefixtures("s3")
def test_unusable_blobs_are_not_bound_to_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for blobs in ("s3://a-bucket-that-does-not-exist/x", str(tmp_path / "file" / "blobs")):
        with pytest.raises(StoreWriteError):
            share_store(tmp_path / "s", blobs=blobs)
    for blobs in ("memory://x", "unknown://x"):
        with pytest.raises(SettingsError):
            share_store(tmp_path / "s", blobs=blobs)
    assert not has_database(tmp_path / "s")
    share_store(tmp_path / "s")


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    assert records_of(share_store(tmp_path)).blobs.sizes() == {}


def test_only_the_owner_can_read_the_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    replace = os.replace

    def note(source: str, target: Path) -> None:
        modes.append(os.stat(source).st_mode & 0o777)
        replace(source, target)

    monkeypatch.setattr(os, "replace", note)
    share_store(tmp_path)
    assert modes[-1] == 0o600
    assert (tmp_path / "ssr-store.json").stat().st_mode & 0o777 == 0o600


def test_a_description_in_the_repository_of_a_project_is_refused(tmp_path: Path) -> None:
    share_store(tmp_path / ".ssr")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    assert Store(tmp_path / ".ssr") is not None
    subprocess.run([*git, "add", "--force", ".ssr/ssr-store.json"], check=True)
    with pytest.raises(StoreError):
        Store(tmp_path / ".ssr")
    assert main(["list", str(tmp_path / ".ssr")]) != 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_description_is_an_error(tmp_path: Path, content: bytes) -> None:
    share_store(tmp_path)
    (tmp_path / "ssr-store.json").write_bytes(content)
    with pytest.raises(StoreError):
        has_database(tmp_path)
    for command in ("check", "gc", "size", "migrate"):
        assert main(["store", command, str(tmp_path)]) not in (0, 1)


@pytest.mark.parametrize("loss", ["removed", "emptied"])
def test_a_lost_database_is_an_error_and_stays_lost(tmp_path: Path, loss: str) -> None:
    share_store(tmp_path).put_record("wanted", "a", {})
    close_engines()
    path = tmp_path / "ssr.db"
    path.unlink() if loss == "removed" else path.write_bytes(b"")
    with pytest.raises(StoreError):
        Store(tmp_path)
    assert main(["store", "check", str(tmp_path)]) not in (0, 1)
    assert path.exists() == (loss == "emptied")
    # What the message advises.
    (tmp_path / "ssr-store.json").write_text(json.dumps({"store_version": 1}))
    assert main(["store", "migrate", str(tmp_path), "--json"]) == 0
    assert Store(tmp_path).record("wanted", "a") == {}


def test_an_empty_database_of_postgresql_is_an_error(tmp_path: Path, database: str) -> None:
    Store(tmp_path)
    description = {"store_version": 1, "database": database, "blobs": ""}
    (tmp_path / "ssr-store.json").write_text(json.dumps(description))
    with pytest.raises(StoreError):
        Store(tmp_path)


def test_a_database_that_is_removed_or_replaced_during_a_run_takes_no_more_writes(tmp_path: Path) -> None:
    store, other = share_store(tmp_path / "s"), share_store(tmp_path / "t")
    store.put_record("wanted", "a", {})
    path = tmp_path / "s" / "ssr.db"
    path.rename(tmp_path / "kept.db")
    with pytest.raises(StoreWriteError):
        store.put_record("wanted", "b", {})
    assert not path.exists()
    other.put_record("wanted", "c", {})
    records_of(other).engine.dispose()
    (tmp_path / "t" / "ssr.db").rename(path)
    for name in ("ssr.db-wal", "ssr.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    # The connections of the pool are those of the earlier file.
    assert store.record("wanted", "c") == {}
    store.put_record("wanted", "b", {})
    close_engines()
    assert Store(tmp_path / "s").record("wanted", "b") == {}


def test_a_failed_open_leaves_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share_store(tmp_path)
    close_engines()
    disposed = []
    dispose = engines.sa.Engine.dispose
    monkeypatch.setattr(engines.sa.Engine, "dispose", lambda engine: (disposed.append(engine), dispose(engine)))
    (tmp_path / "ssr.db").write_bytes(b"this is not a database" * 100)
    for _ in range(2):
        with pytest.raises(StoreError):
            Store(tmp_path)
    assert len(disposed) == 2
