"""Start a real browser for tests; without one they are skipped, except in CI."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def real_browser() -> Iterator[Any]:
    """Yield a running Chromium, without background network traffic."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None or importlib.util.find_spec("playwright") is None:
        text = "a browser is needed: apt-get install chromium, pip install playwright"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        launched = started.chromium.launch(executable_path=executable, args=[*quiet, "--disable-sync"])
        yield launched
        launched.close()
