"""Stores with each kind of database; without the packages of the service, these tests are not collected."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

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
