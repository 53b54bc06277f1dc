"""How far the measuring of a project's tests has come: counts in, lines for people out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called from time to time, in any thread, with how many tests were collected and how many of them have run.

Both are 0 as long as that is not known.
"""
_PLAIN_EVERY_S = 15.0
"""Often enough for a log to show life, and seldom enough for it to stay readable."""


def duration(seconds: float) -> str:
    """Return seconds in the unit that reads best."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


class MeasuringLines:
    """Shows the progress of the measuring: on a terminal as a line that changes, else as a line now and then."""

    def __init__(
        self,
        *,
        live: Callable[[str], None] | None,
        plain: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """live: replaces the line that it wrote last; None if the output is no terminal. plain: writes a line."""
        self._live, self._plain, self._clock = live, plain, clock
        self._start = clock()
        self._due = self._start + _PLAIN_EVERY_S
        self._lock = threading.Lock()
        self._shown = False

    def __call__(self, collected: int, done: int) -> None:
        """Show it; see Progress."""
        with self._lock:
            now = self._clock()
            line = measuring_line(collected, done, now - self._start)
            if self._live is not None:
                self._shown = True
                self._live(line)
            elif now >= self._due:
                self._due = now + _PLAIN_EVERY_S
                self._plain(line)

    def clear(self) -> None:
        """Leave the terminal's line empty: what comes next is no progress."""
        with self._lock:
            if self._live is not None and self._shown:
                self._live("")


def measuring_line(collected: int, done: int, elapsed_s: float) -> str:
    """Return `measuring the tests: 812 of 1950 run, 34 s`; without the counts if they are not known."""
    if not collected:
        return f"measuring the tests, {elapsed_s:.0f} s"
    return f"measuring the tests: {min(done, collected)} of {collected} run, {elapsed_s:.0f} s"
