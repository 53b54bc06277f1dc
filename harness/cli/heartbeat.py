"""Repeat the latest status line in a log, so that a step that takes long is seen to be alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pytest_ssr.interrupts import Background, background, pause
from pytest_ssr.progress import format_duration

_EVERY_S, _TICK_S = 15.0, 1.0


class Heartbeat:
    """Writes the status line at most every 15 seconds, if nothing else was written meanwhile."""

    def __init__(self, write: Callable[[str], None], *, every_s: float = _EVERY_S) -> None:
        self._write, self._every_s = write, every_s
        self._lock = threading.Lock()
        self._line = self._written = ""
        self._since = self._due = 0.0
        self._task: Background[None] | None = None

    def show(self, line: str) -> None:
        """Set the line; an empty one ends the step."""
        with self._lock:
            now = time.monotonic()
            if not self._line or line != self._line:
                self._since = now
            if not self._line:
                self._due = now + self._every_s
            self._line = line
            if line and self._task is None:
                self._task = background(self._beat, name="heartbeat")

    def postpone(self) -> None:
        """Wait again, because something else was written."""
        with self._lock:
            self._due = time.monotonic() + self._every_s

    def stop(self) -> None:
        """End the thread within a second."""
        if self._task is not None:
            self._task.request_stop()
            self._task = None

    def _beat(self) -> None:
        while True:
            pause(min(_TICK_S, self._every_s))
            with self._lock:
                now = time.monotonic()
                if not self._line or now < self._due:
                    continue
                self._due = now + self._every_s
                # A line that stays the same shows nothing new but the time.
                is_same, self._written = self._line == self._written, self._line
                line = f"{self._line}, for {format_duration(now - self._since)}" if is_same else self._line
            self._write(line)
