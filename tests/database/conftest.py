"""Stores with each kind of database; without the packages of the service, these tests are not collected."""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import s3
from shared_stores import MakeStore, execute

from pytest_ssr.storage.store import Store

PACKAGES = ("sqlalchemy", "alembic", "fastapi")
collect_ignore_glob: list[str] = []
if any(importlib.util.find_spec(p) is None for p in PACKAGES) and not os.environ.get("CI"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close all connections after each test."""
    yield
    from harness.database.engine import close_engines

    close_engines()


@pytest.fixture
def make_store(tmp_path: Path, request: pytest.FixtureRequest) -> MakeStore:
    """A function that creates a store of a kind: folder, sqlite, or postgres with blobs in S3."""
    from harness.database.sharing import share_store
    from pytest_ssr.storage.store import Store

    def make(kind: str) -> Store:
        root = tmp_path / f"{kind}-store"
        if kind == "folder":
            return Store(root)
        if kind == "sqlite":
            return share_store(root)
        url, bucket = request.getfixturevalue("postgres_url"), request.getfixturevalue("s3")
        name = f"t{secrets.token_hex(6)}"
        execute(f"{url}/postgres", f"CREATE DATABASE {name}")
        return share_store(root, database=f"{url}/{name}", blobs=f"{bucket}/{name}")

    return make


@pytest.fixture(params=["folder", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, make_store: MakeStore) -> object:
    """A store of each kind."""
    return make_store(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def shared_store(request: pytest.FixtureRequest, make_store: MakeStore) -> object:
    """A store with each kind of database."""
    return make_store(request.param)


@pytest.fixture
def shared(tmp_path: Path, database: str) -> list[Store]:
    """Two folders of two machines that share a database and blobs."""
    from harness.database.sharing import share_store

    blobs = str(tmp_path / "blobs")
    if database == "sqlite":
        database = f"sqlite:///{tmp_path}/shared.db"
    return [share_store(tmp_path / name, database=database, blobs=blobs) for name in ("one", "two")]


__all__ = ["s3"]
