"""`ssr store migrate` takes over a store of today's format, and `ssr store check` finds what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from small_artifact import ARTIFACT

from harness.database.records import records_of
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
        "store": str(folder), "dry_run": False, "files": 0, "bytes": 0, "present": 7,
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
