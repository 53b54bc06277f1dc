"""Lines for people: colour and a live status line on a terminal only, plain text elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import shutil
import sys
import time

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


class Terminal:
    """Writes to standard output; the status line goes to standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._colour = sys.stdout.isatty() and not plain
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since this was made."""
        return time.monotonic() - self._start

    def say(self, line: str, kind: str = "") -> None:
        """Print one line; kind chooses the colour."""
        if self._quiet:
            return
        self._clear()
        code = _CODES.get(kind) if self._colour else None
        text = escaped_line(line)
        print(f"\033[{code}m{text}\033[0m" if code else text, flush=True)

    def status(self, line: str) -> None:
        """Show what is going on, on a line that the next one replaces."""
        if self._live:
            self._clear()
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(escaped_line(line)[:width])
            sys.stderr.flush()
            self._shown = True

    @property
    def is_live(self) -> bool:
        """Whether `status` shows anything: a person is looking, and no log is written."""
        return self._live and not self._quiet

    def note(self, line: str) -> None:
        """Print a line about what is going on, on standard error: standard output is for results."""
        if not self._quiet:
            self._clear()
            print(escaped(line), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._shown = False
