"""Stores with each kind of database; without the packages of the service, these tests are not collected."""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Iterator

import postgres
import pytest

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


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server of our own, without a database."""
    if postgres.programs() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is needed: apt-get install postgresql")
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return "sqlite"
    import psycopg

    url, name = request.getfixturevalue("postgres_url"), f"t{secrets.token_hex(6)}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url}/{name}"
