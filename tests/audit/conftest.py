"""Provide a browser, which CI has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from real_browser import real_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser."""
    with real_browser() as launched:
        yield launched
