"""Report the progress of a test run, read from our reporter's channel during the run.

If a sandbox's files cannot be read meanwhile, the reports show only that the run continues.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from pytest_ssr.errors import SandboxError
from pytest_ssr.interrupts import background, pause
from pytest_ssr.progress import Progress
from pytest_ssr.sandbox.protocol import MIB, Sandbox

_EVERY_S = 1.0
_COST_SHARE = 20
"""Reading takes at most one twentieth of the time."""
_MOST_BYTES = 256 * MIB
_DONE = b'"kind": "done"}\n'
_COLLECTED = b'"kind": "collected"}\n'


@runtime_checkable
class Peeking(Protocol):
    """A sandbox whose files can be read from another thread while a command runs in it."""

    def peek(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's current content; otherwise like `read`."""


@contextlib.contextmanager
def report_progress(sandbox: Sandbox, channel: str, progress: Progress | None) -> Iterator[None]:
    """Call `progress` about once a second while a run writes to a channel."""
    if progress is None:
        yield
        return
    with background(lambda: _report(sandbox, channel, progress), name="progress"):
        yield


def _report(sandbox: Sandbox, channel: str, progress: Progress) -> None:
    collected = 0
    cost = 0.0
    while True:
        pause(max(_EVERY_S, _COST_SHARE * cost))
        begin = time.monotonic()
        raw = _read(sandbox, channel)
        collected = collected or collected_in(raw)
        progress(collected, raw.count(_DONE))
        cost = time.monotonic() - begin


def _read(sandbox: Sandbox, channel: str) -> bytes:
    if isinstance(sandbox, Peeking):
        with contextlib.suppress(FileNotFoundError, SandboxError):
            return sandbox.peek(channel, max_bytes=_MOST_BYTES)
    return b""


def collected_in(raw: bytes) -> int:
    """Return how many tests a channel lists as collected; 0 if it does not list them yet."""
    end = raw.find(_COLLECTED)
    if end < 0:
        return 0
    line = raw[raw.rfind(b"\n", 0, end) + 1 : end + len(_COLLECTED)]
    try:
        return len(json.loads(line)["ids"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
