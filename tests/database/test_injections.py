"""The table of rollouts has what a model's attempt at a bug cost, and whether the bug is valid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from play_parts import Writing
from proven import Proven, project, proven
from shared_stores import records_of

from harness.database.migrate import migrate
from harness.database.schema import rollouts
from harness.database.sharing import share_store
from harness.injectors.campaign import ModelCampaign
from harness.injectors.model import ModelInjector
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.storage.store import Store

__all__ = ["project", "proven"]


def attempt(proven: Proven, store: Store, *, is_valid: bool) -> None:
    artifact = proven.artifact if is_valid else replace(proven.artifact, bug=proven.artifact.weaken)
    injector = ModelInjector(Writing(artifact), "direct", rejections=0)
    ModelCampaign(proven.runner, store, injector, seed=0).attempt(0)


def rows(store: Store) -> list[dict[str, Any]]:
    with records_of(store).engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(sa.select(rollouts))]


@pytest.mark.parametrize("is_valid", [True, False])
def test_an_attempt_of_an_injector_is_complete(proven: Proven, shared_store: Store, is_valid: bool) -> None:
    attempt(proven, shared_store, is_valid=is_valid)
    (row,) = rows(shared_store)
    assert (row["role"], row["player"], row["valid"], row["resolved"]) == ("injector", "writing", is_valid, None)
    assert (row["steps"], row["tokens"], row["status"], row["exit_reason"]) == (2, 220, "completed", "submitted")
    assert row["seconds"] > 0
    # The task of an injector is a tree; what it made is a bug, if it is valid.
    assert row["artifact_id"] == (shared_store.artifact_ids()[0] if is_valid else "")
    assert (row["reason"] == "") == is_valid
    assert row["reason"] in ("", *map(str, CheckCode))


def test_a_folder_that_is_taken_over_has_the_same(proven: Proven, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    attempt(proven, store, is_valid=True)
    shared = share_store(store.root)
    migrate(store.root, records_of(shared), progress=str)
    (row,) = rows(shared)
    assert (row["artifact_id"], row["player"], row["tokens"]) == (store.artifact_ids()[0], "writing", 220)
