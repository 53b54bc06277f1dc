"""Print lines for people, with colour and a live status line if the output is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable

from pytest_ssr.escaping import escaped, escaped_line

_CODES = {
    "valid": "32",
    "added": "32",
    "bad": "31",
    "removed": "31",
    "missed": "33",
    "survived": "33",
    "heading": "1",
}


STATUS_LINES = "SSR_STATUS_LINES"
"""A variable with which all progress is written to standard error, a line each, for a program that follows it."""


class Terminal:
    """Writes lines to standard output, and the status line to standard error; nothing if quiet, except status lines."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._colour = sys.stdout.isatty() and not plain
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._followed = bool(os.environ.get(STATUS_LINES))
        self._shown = False
        self.suffix: Callable[[], str] = lambda: ""
        """Returns what is added to every status line, such as how many workers are busy."""
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since this object was created."""
        return time.monotonic() - self._start

    def echo(self, line: str, kind: str = "") -> None:
        """Print one line; `kind` selects the colour."""
        if self._quiet:
            self._follow(line)
            return
        self._clear()
        code = _CODES.get(kind) if self._colour else None
        text = escaped_line(line)
        print(f"\033[{code}m{text}\033[0m" if code else text, flush=True)

    def status(self, line: str) -> None:
        """Show a status line, which the next line replaces."""
        line += self.suffix()
        if self._followed:
            self._follow(line)
        elif self._live:
            self._clear()
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(escaped_line(line)[:width])
            sys.stderr.flush()
            self._shown = True

    @property
    def is_live(self) -> bool:
        """Whether status lines are useful: a terminal or a program shows them."""
        return self._followed or (self._live and not self._quiet)

    def note(self, line: str) -> None:
        """Print a progress line to standard error; standard output is for results."""
        if not self._quiet:
            self._clear()
            print(escaped(line), file=sys.stderr, flush=True)

    def _follow(self, line: str) -> None:
        if self._followed:
            print(escaped_line(line), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._shown = False
