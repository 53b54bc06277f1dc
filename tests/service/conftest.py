"""A running service with a filled store; without its packages, these tests are not collected."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_browser import real_browser

PACKAGES = ("sqlalchemy", "alembic", "fastapi", "opentelemetry")
collect_ignore_glob: list[str] = []
if any(importlib.util.find_spec(p) is None for p in PACKAGES) and not os.environ.get("CI"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The address of a service, and the records that it shows."""
    import uvicorn
    from dashboard_store import dashboard_store

    from harness.database.engine import close_engines
    from harness.service.app import create_app

    records = dashboard_store(tmp_path_factory.mktemp("served") / "store")
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    app = create_app(records)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", records
    app.state.streams.close()
    server.should_exit = True
    thread.join(20)
    close_engines()


@pytest.fixture
def as_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse command lines as a process of `ssr` does, which imports pydantic later: Cyclopts lets it check defaults."""
    monkeypatch.delitem(sys.modules, "pydantic", raising=False)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser."""
    with real_browser() as launched:
        yield launched


@pytest.fixture
def records(database: str, tmp_path: Path) -> Iterator[Any]:
    """The records of an empty store in the folder `store`, on each kind of database."""
    from harness.database.engine import close_engines
    from harness.database.records import records_of
    from harness.database.sharing import share_store

    share_store(tmp_path / "store", database=database)
    yield records_of(tmp_path / "store")
    close_engines()
