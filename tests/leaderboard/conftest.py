"""Skip the leaderboard's tests without its extra, and provide a browser; CI has both."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest
from real_browser import real_browser

PACKAGES = ("matplotlib", "pandas", "scipy")
collect_ignore_glob: list[str] = []
if any(importlib.util.find_spec(p) is None for p in PACKAGES) and not os.environ.get("CI"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser."""
    with real_browser() as launched:
        yield launched
