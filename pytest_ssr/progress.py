"""Report the progress of a project's baseline run as lines for people to read."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator

Progress = Callable[[int, int], None]
"""Called from time to time, in any thread, with the numbers of tests collected and tests run.

Both are 0 while they are unknown.
"""
_PLAIN_EVERY_S = 15.0
"""Often enough to show that the run is alive, rarely enough to keep a log readable."""


def format_duration(seconds: float) -> str:
    """Return a duration as a string in seconds, minutes or hours, whichever reads best."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 test` and `2 tests`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Waits:
    """What threads of this process wait for at the moment, which progress lines show."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._watchers: list[weakref.WeakMethod[Callable[[], None]]] = []

    @property
    def text(self) -> str:
        """What is added to a progress line; empty if no thread waits."""
        with self._lock:
            return "".join(f", waits for {what}" for what, count in sorted(self._counts.items()) if count)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a method whenever a wait begins or ends, as long as its object exists."""
        with self._lock:
            self._watchers = [w for w in self._watchers if w() is not None] + [weakref.WeakMethod(changed)]

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show that this thread waits for something during the block."""
        self._count(what, 1)
        try:
            yield
        finally:
            self._count(what, -1)

    def _count(self, what: str, change: int) -> None:
        with self._lock:
            self._counts[what] += change
            watchers = [w() for w in self._watchers]
        for changed in watchers:
            if changed is not None:
                changed()


waits = Waits()
"""Those of this process."""


class ProgressLines:
    """Show the progress of the baseline run: one changing line on a terminal, otherwise a line every 15 seconds."""

    def __init__(
        self,
        *,
        live: Callable[[str], None] | None,
        plain: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """live: replaces the line it wrote last; None if the output is not a terminal. plain: writes a new line."""
        self._live, self._plain, self._clock = live, plain, clock
        self._start = clock()
        self._due = self._start + _PLAIN_EVERY_S
        self._lock = threading.Lock()
        self._shown = False
        self._most_done = 0

    def __call__(self, collected: int, done: int) -> None:
        """Show the counts; see Progress."""
        with self._lock:
            now = self._clock()
            # Tests that failed while they were recorded run once more without the recording.
            is_again = done < self._most_done
            self._most_done = max(self._most_done, done)
            line = progress_line(collected, done, now - self._start, is_again=is_again)
            if self._live is not None:
                self._shown = True
                self._live(line)
            elif now >= self._due:
                self._due = now + _PLAIN_EVERY_S
                self._plain(line)

    def clear(self) -> None:
        """Clear the terminal's line before other output."""
        with self._lock:
            if self._live is not None and self._shown:
                self._live("")


def progress_line(collected: int, done: int, elapsed_s: float, *, is_again: bool = False) -> str:
    """Return `measuring the tests: 812 of 1950 run, 34 s`, without the counts if they are unknown."""
    task = "measuring the tests that failed again" if is_again else "measuring the tests"
    if not collected:
        return f"{task}, {elapsed_s:.0f} s"
    return f"{task}: {min(done, collected)} of {collected} run, {elapsed_s:.0f} s"
