"""Print lines for people, with colour and a live status line if the output is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
import unicodedata
import weakref
from collections.abc import Callable

from harness.cli.heartbeat import Heartbeat
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


_opened: weakref.WeakSet[Terminal] = weakref.WeakSet()


def close_terminals() -> None:
    """Close the terminals of a command that has ended."""
    for terminal in list(_opened):
        terminal.close()


class Terminal:
    """Writes lines to standard output, and the status line to standard error; nothing if quiet, except status lines."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colour = sys.stdout.isatty() and not plain
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._followed = bool(os.environ.get(STATUS_LINES))
        self._shown = False
        self._heartbeat = Heartbeat(self._write_note)
        _opened.add(self)
        # A command that is called as a function does not close it.
        weakref.finalize(self, self._heartbeat.stop)
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
        self._heartbeat.postpone()
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
            sys.stderr.write(_fitting(escaped_line(line), width))
            sys.stderr.flush()
            self._shown = True
        elif not self._quiet:
            self._heartbeat.show(line)

    def close(self) -> None:
        """Stop the repetition of the status line."""
        self._heartbeat.stop()

    def note(self, line: str) -> None:
        """Print a progress line to standard error; standard output is for results."""
        if not self._quiet:
            self._clear()
            self._write_note(line)
            self._heartbeat.postpone()

    @staticmethod
    def _write_note(line: str) -> None:
        print(escaped(line), file=sys.stderr, flush=True)

    def _follow(self, line: str) -> None:
        if self._followed:
            print(escaped_line(line), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._shown = False


def _fitting(line: str, width: int) -> str:
    """Return as much of a line as fits into so many columns; characters of East Asia take two."""
    for index, character in enumerate(line):
        width -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width < 0:
            return line[:index]
    return line
