"""`ssr store migrate` takes over a store of today's format, and `ssr store check` finds what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from small_artifact import ARTIFACT

from harness.cli.commands.serve import serve
from harness.database.migrate import check, migrate
from harness.database.records import records_of
from harness.database.sharing import fetch_all, share_store
from harness.settings.service import ServeSettings
from pytest_ssr.errors import StoreError
from pytest_ssr.storage.store import Store


@pytest.fixture
def folder(tmp_path):
    """A store without a database, with an artifact and a rollout."""
    store = Store(tmp_path / "store")
    store.put_artifact("i", ARTIFACT)
    store.put_file("rollouts/k", "patch.diff", b"x")
    store.put_record("baselines", "b", {})
    return store.root


def _run(*arguments: object) -> tuple[int, dict]:
    command = [sys.executable, "-m", "harness.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_dry_run_counts_and_changes_nothing(folder):
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    code, data = _run("store", "migrate", folder, "--dry-run")
    assert (code, data["files"], data["present"]) == (0, 7, 0)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_results_are_taken_over_once(folder):
    assert _run("store", "migrate", folder)[1]["files"] == 7
    assert _run("store", "migrate", folder)[1] | {"bytes": 0} == {
        "store": str(folder), "dry_run": False, "files": 0, "bytes": 0, "present": 7, "skipped": 0, "unfinished": 0,
        "trees": 0,
    }  # fmt: skip
    assert Store(folder).artifact("i") == ARTIFACT
    assert set(records_of(folder).digests("rollouts")) == {"rollouts/k/patch.diff"}
    assert _run("store", "check", folder)[0] == 0


def test_missing_damaged_and_unshared_files_are_listed(folder):
    _run("store", "migrate", folder)
    records = records_of(folder)
    digest = records.digests("rollouts")["rollouts/k/patch.diff"]
    next((folder / "blobs").rglob(digest)).unlink()
    (folder / "rollouts" / "k" / "new.diff").write_bytes(b"y")
    code, data = _run("store", "check", folder)
    assert code == 1
    assert data["missing"] == ["rollouts/k/patch.diff"]
    assert data["unshared"] == ["rollouts/k/new.diff"]


@pytest.mark.parametrize("command", ["check", "migrate"])
def test_a_folder_that_is_not_a_store_is_a_usage_error(tmp_path, command):
    dry = ["--dry-run"] if command == "migrate" else []
    assert _run("store", command, tmp_path / "none", *dry)[0] == 2


def test_names_that_are_no_text_are_counted_and_left_out(folder):
    for name in (b"rollouts/k/\xff.diff", b"rollouts/\xfe/rollout.json", b"attempts/\xff.json"):
        path = os.fsencode(folder) + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"{}")
    code, data = _run("store", "migrate", folder)
    assert (code, data["files"], data["skipped"]) == (0, 7, 3)
    code, data = _run("store", "check", folder)
    assert (code, data["unshared"]) == (0, [])


def test_a_file_that_disappears_is_left_out(folder, monkeypatch):
    records = records_of(share_store(folder).root)
    put_file = records.blobs.put_file

    def put_and_remove(path):
        (folder / "rollouts" / "k" / "b.diff").unlink(missing_ok=True)
        return put_file(path)

    (folder / "rollouts" / "k" / "b.diff").write_bytes(b"y")
    monkeypatch.setattr(records.blobs, "put_file", put_and_remove)
    done = migrate(folder, records, progress=lambda _: None)
    assert (done.files, done.skipped) == (7, 1)
    assert set(records.digests("rollouts")) == {"rollouts/k/patch.diff"}


def test_a_file_that_cannot_be_read_is_one_error(folder, monkeypatch):
    records = records_of(share_store(folder).root)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(records.blobs, "put_file", refuse)
    with pytest.raises(StoreError):
        migrate(folder, records, progress=lambda _: None)


def test_a_rollout_that_a_run_is_writing_is_left_for_later(folder):
    journal = folder / "rollouts" / "running" / "trajectory.jsonl"
    journal.parent.mkdir()
    # The run began before the store had a database.
    store = Store(folder)
    with store.alone("running"), journal.open("w") as file:
        file.write('{"task_id": "t"}\n')
        file.flush()
        assert _run("store", "migrate", folder)[1]["unfinished"] == 1
        assert _run("store", "check", folder)[0] == 0
        file.write("more\n")
    assert _run("store", "migrate", folder)[1]["files"] == 1
    assert _run("store", "check", folder)[0] == 0
    assert Store(folder).file("rollouts/running", "trajectory.jsonl") == b'{"task_id": "t"}\nmore\n'


def test_a_file_that_grows_while_it_is_stored_is_kept_as_it_was(folder, monkeypatch):
    records = records_of(share_store(folder).root)
    path = folder / "rollouts" / "k" / "trajectory.jsonl"
    path.write_bytes(b"{}\n")
    link = os.link

    def grow_and_link(source, target):
        with path.open("ab") as file:
            file.write(b"more\n")
        link(source, target)

    monkeypatch.setattr(os, "link", grow_and_link)
    records.put_folder(path.parent, {"rollouts/k/trajectory.jsonl": path})
    assert records.get("rollouts/k/trajectory.jsonl") == b"{}\n"


def test_an_artifact_that_another_machine_has_set_aside_does_not_come_back(tmp_path, database):
    where = {"database": database, "blobs": str(tmp_path / "b")}
    if database == "sqlite":
        where["database"] = f"sqlite:///{tmp_path}/x.db"
    one, two = (share_store(tmp_path / name, **where) for name in ("one", "two"))
    for name in ("i", "j"):
        one.put_artifact(name, ARTIFACT)
    fetch_all(two.root)
    one.make_spare("i")
    done = migrate(two.root, records_of(two.root), progress=lambda _: None)
    assert (done.files, two.artifact_ids(), one.artifact_ids()) == (0, ["j"], ["j"])
    assert check(two.root, records_of(two.root), progress=lambda _: None).unshared == ()
    # Exports read the folder.
    fetch_all(two.root)
    assert [sorted(p.name for p in (two.root / kind).iterdir()) for kind in ("artifacts", "spare")] == [["j"], ["i"]]
    two.publish("i")
    fetch_all(one.root)
    assert [sorted(p.name for p in (one.root / kind).iterdir()) for kind in ("artifacts", "spare")] == [["i", "j"], []]


def test_the_results_of_an_interrupted_migration_are_taken_over_when_the_store_is_served(folder, monkeypatch):
    from harness.service import server

    monkeypatch.setattr(server, "run", lambda records, listening: None)
    share_store(folder)
    assert serve(ServeSettings(store=folder, port=0)) == 0
    assert _run("store", "check", folder)[0] == 0
    assert Store(folder).artifact_ids() == ["i"]
