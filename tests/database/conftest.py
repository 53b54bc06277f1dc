"""Give tests a store of each kind: a folder, SQLite, and PostgreSQL with an S3 server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer
from postgres import Postgres, programs, running
from shared_stores import MakeStore

from harness.database.sharing import share_store
from pytest_ssr.storage.store import Store

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Return a PostgreSQL server; in CI it must be installed."""
    folder = programs()
    if folder is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is not installed")
    with running(folder) as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Return the URL of a bucket on an S3 server; child processes use it, too."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("ssr-tests")
        yield "s3://ssr-tests"
    server.stop()


@pytest.fixture
def make_store(tmp_path: Path, request: pytest.FixtureRequest) -> MakeStore:
    """Return a function that creates a store of a kind: folder, sqlite or postgres."""

    def make(kind: str) -> Store:
        root = tmp_path / f"{kind}-store"
        if kind == "folder":
            return Store(root)
        if kind == "sqlite":
            return share_store(root)
        number = next(_NUMBERS)
        server: Postgres = request.getfixturevalue("postgres")
        bucket: str = request.getfixturevalue("s3")
        return share_store(root, database=server.create(f"test{number}"), blobs=f"{bucket}/store{number}")

    return make


@pytest.fixture(params=["folder", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, make_store: MakeStore) -> Store:
    """Return a store of each kind."""
    return make_store(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def shared_store(request: pytest.FixtureRequest, make_store: MakeStore) -> Store:
    """Return a store with each kind of database."""
    return make_store(request.param)
