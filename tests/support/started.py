"""Start `ssr` in a session of its own, so that a test can kill it with its sandboxes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable


def started(*argv: object) -> subprocess.Popen[str]:
    """Start a command; its standard error is piped."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *map(str, argv)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; fails after five minutes."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
