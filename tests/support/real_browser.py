"""Start a real browser for tests; without one they are skipped, except in CI."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
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


def contrast(tab: Any, selector: str) -> float:
    """Return the contrast of an element's text with its background, by WCAG 2.1."""
    script = """(selector) => {
        const node = document.querySelector(selector);
        let back = node;
        while (getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
        return [getComputedStyle(node).color, getComputedStyle(back).backgroundColor];
    }"""
    light = []
    for colour in tab.evaluate(script, selector):
        parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return float((max(light) + 0.05) / (min(light) + 0.05))
