"""What models and projects write is stored as it is, and fits into the tables for queries."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared_stores import execute, records_of

from harness.database.schema import METADATA, artifacts, candidates, episodes, rollouts, rounds
from harness.database.sharing import share_store
from harness.records.episode import Episode
from pytest_ssr.errors import StoreWriteError
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.storage.store import Store

_LARGE = 2**62
_HOSTILE = "\0\ud800" + "é" * 5_000


def _rows(store: Store, table: sa.Table) -> list[sa.Row]:
    with records_of(store).engine.connect() as connection:
        return list(connection.execute(sa.select(table)).all())


def _stored(kind: str) -> dict[str, object]:
    """Return a record whose texts and numbers are as long and large as they can be."""
    if kind == "artifact":
        injector = dict.fromkeys(("strategy", "operator", "model"), _HOSTILE)
        texts = dict.fromkeys(("repository", "tree_hash", "parent"), _HOSTILE)
        return {**texts, "injector": injector, "order": _LARGE, "FAIL_TO_PASS": [], "sizes": {"files": _LARGE}}
    if kind == "trajectory":
        return {"task_id": _HOSTILE, "role": _HOSTILE, "model": _HOSTILE, "attempt": _LARGE}
    if kind == "candidate":
        texts = dict.fromkeys(("strategy", "operator", "path", "scope", "check", "artifact_id"), _HOSTILE)
        result = CandidateResult(
            _LARGE, CandidateStatus.VALID, line=_LARGE, detail="", diff="", fail_to_pass=_LARGE, seconds=1e99, **texts
        )
        return result.to_json()
    texts = dict.fromkeys(("project", "artifact_id", "parent", "strategy", "operator", "path", "scope"), _HOSTILE)
    numbers = dict.fromkeys(("round", "order", "lines", "fail_to_pass", "tokens"), _LARGE)
    episode = Episode(**texts, **numbers, valid=True, reason=None, check=_HOSTILE, cost_usd=1e99)
    return {"episodes": [episode.to_json()] * 2}


@pytest.mark.parametrize(
    ("kind", "path", "table"),
    [
        ("artifact", "artifacts/i/artifact.json", artifacts),
        ("trajectory", "rollouts/r/trajectory.jsonl", rollouts),
        ("candidate", "attempts/c/00001.json", candidates),
        ("round", "episodes/r/round-1.json", episodes),
        ("round", "episodes/r/round-1.json", rounds),
    ],
)
def test_hostile_values_are_stored_and_bounded(shared_store: Store, kind: str, path: str, table: sa.Table) -> None:
    folder, _, name = path.rpartition("/")
    data = json.dumps(_stored(kind)).encode() + b"\n"
    # Twice: the second replaces the first.
    for _ in range(2):
        shared_store.put_file(folder, name, data)
    assert shared_store.file(folder, name) == data
    rows = _rows(shared_store, table)
    assert len(rows) == (2 if table is episodes else 1)
    for name, value in rows[0]._mapping.items():
        if isinstance(value, str):
            assert "\0" not in value
            assert len(value) <= (getattr(METADATA.tables[table.name].c[name].type, "length", None) or 512)


@pytest.mark.parametrize("name", ["a" * 600, "a\0", "a\udc80", "..", "", "a//b"])
def test_an_impossible_path_is_an_error(shared_store: Store, name: str) -> None:
    records = records_of(shared_store)
    with pytest.raises(StoreWriteError):
        records.put({f"rollouts/{name}/rollout.json": b"{}"})
    assert records.digests("rollouts") == {}


def test_an_id_that_is_too_long_for_the_tables_is_stored_without_them(shared_store: Store) -> None:
    shared_store.put_record(f"artifacts/{'i' * 100}", "artifact", _stored("artifact"))
    assert shared_store.artifact_ids() == ["i" * 100]
    assert _rows(shared_store, artifacts) == []


def test_unreadable_records_are_stored_all_the_same(shared_store: Store) -> None:
    for data in (b"", b"[", b"[]", b"\xff", b"[" * 100_000, b'{"episodes": [1, {}]}'):
        for path in (
            "artifacts/i/artifact.json",
            "attempts/c/1.json",
            "episodes/r/round-1.json",
            "rollouts/r/rollout.json",
        ):
            folder, _, name = path.rpartition("/")
            shared_store.put_file(folder, name, data)
            assert shared_store.file(folder, name) == data


def test_a_database_of_another_encoding_holds_texts(postgres_url: str, tmp_path: Path) -> None:
    name = f"t{secrets.token_hex(6)}"
    execute(f"{postgres_url}/postgres", f"CREATE DATABASE {name} ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0")
    store = share_store(tmp_path / "store", database=f"{postgres_url}/{name}")
    store.put_record("attempts/c", "00000", {"text": "ä→"})
    assert store.record("attempts/c", "00000") == {"text": "ä→"}
