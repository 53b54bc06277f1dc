"""A service on SQLite and on PostgreSQL, whose address SSR_TEST_POSTGRES gives."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from dashboard_store import dashboard_store

from harness.database.records import DatabaseRecords

POSTGRES = os.environ.get("SSR_TEST_POSTGRES", "")
"""Of a server whose user may create databases, such as postgresql+psycopg://ssr@127.0.0.1/postgres."""


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseRecords]:
    """A store with something of everything."""
    folder: Path = tmp_path_factory.mktemp("store") / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSR_DATABASE", raising=False)
        if request.param == "sqlite":
            yield dashboard_store(folder)
            return
        if not POSTGRES:
            pytest.skip("SSR_TEST_POSTGRES is not set")
        server = sa.create_engine(POSTGRES, isolation_level="AUTOCOMMIT")
        name = f"ssr_api_{uuid.uuid4().hex[:8]}"
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        url = server.url.set(database=name, drivername="postgresql")
        patch.setenv("SSR_DATABASE", url.render_as_string(hide_password=False))
        found = dashboard_store(folder)
        yield found
        found.engine.dispose()
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        server.dispose()
