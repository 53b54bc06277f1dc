"""Workers write into the database and the blobs of a store that all nodes reach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="tox -e ray installs it")
pytest.importorskip("sqlalchemy", reason="tox -e ray installs it")

import postgres
from clusters import LocalCluster
from object_store import s3
from plain import plain_python

from harness.cli.main import main
from harness.database.sharing import share_store
from pytest_ssr.storage.store import Store


@pytest.fixture
def database() -> Iterator[str]:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres.server() as url:
        yield f"{url}/postgres"


def test_results_of_nodes_are_in_the_database(
    s3: str,
    project: Path,
    cluster: LocalCluster,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blobs = f"{s3}/cluster"
    share_store(tmp_path / "store", database=database, blobs=blobs)
    common = ["inject", str(project), "--count", "2", "--python", str(plain_python()), "--json"]
    main([*common, "--store", str(tmp_path / "store"), "--ray", cluster.address])
    there = json.loads(capsys.readouterr().out)["valid"]
    main([*common, "--store", str(tmp_path / "here")])
    here = json.loads(capsys.readouterr().out)["valid"]
    assert there == here
    # Another machine with the same database has them, too, and nothing else has to be sent.
    elsewhere = share_store(tmp_path / "elsewhere", database=database, blobs=blobs)
    assert elsewhere.artifact_ids() == sorted(here)
    for artifact_id in here:
        assert elsewhere.artifact(artifact_id).contents() == Store(tmp_path / "here").artifact(artifact_id).contents()


__all__ = ["s3"]
