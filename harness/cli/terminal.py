"""Print lines for people, with colour and a live status line if the output is a terminal."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable

from harness.records.job_reports import STATUS_LINES, JobReport, Stage
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.interrupts import Background, background, pause
from pytest_ssr.progress import format_duration, waits

_EVERY_S, _TICK_S = 15.0, 1.0
"""Seconds after which a status line is repeated in a log, so that a step that takes long is seen to be alive."""


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


_CODES = {
    "valid": "32",
    "added": "32",
    "bad": "31",
    "removed": "31",
    "missed": "33",
    "survived": "33",
    "heading": "1",
}


_opened: weakref.WeakSet[Terminal] = weakref.WeakSet()


def close_terminals() -> None:
    """Close the terminals of a command that has ended."""
    for terminal in list(_opened):
        terminal.close()


class NoteHandler(logging.Handler):
    """Writes the log of this package between the lines of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to the open terminal, or to standard error."""
        note = next((terminal.note for terminal in list(_opened)), Terminal._write_note)
        note(record.getMessage())


class Terminal:
    """Writes lines to standard output, and the status line to standard error; nothing if quiet, except status lines.

    Several threads can write.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colour = sys.stdout.isatty() and not plain
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._followed = bool(os.environ.get(STATUS_LINES))
        self._shown = False
        self._writing = threading.RLock()
        self._heartbeat = Heartbeat(self._write_note)
        _opened.add(self)
        # A command that is called as a function does not close it.
        weakref.finalize(self, self._heartbeat.stop)
        self.suffix: Callable[[], str] = lambda: ""
        """Returns what is added to every status line, such as how many workers are busy."""
        self._status = ""
        waits.watch(self._show_wait)
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since this object was created."""
        return time.monotonic() - self._start

    def echo(self, line: str, kind: str = "", *, artifact: str = "", attempt: str = "") -> None:
        """Print one line. kind: selects the colour. artifact, attempt: the id of what the line is about."""
        self.log(line, kind, artifact=artifact, attempt=attempt)
        if self._quiet:
            return
        code = _CODES.get(kind) if self._colour else None
        text = escaped_line(line)
        with self._writing:
            self._clear()
            self._heartbeat.postpone()
            print(f"\033[{code}m{text}\033[0m" if code else text, flush=True)

    def log(self, line: str, kind: str = "", *, artifact: str = "", attempt: str = "") -> None:
        """Report a line to a program that follows, which has room for more than a terminal; see `echo`."""
        self._follow(JobReport(line=escaped_line(line), kind=kind, artifact=artifact, attempt=attempt))

    def status(self, line: str) -> None:
        """Show a status line, which the next line replaces."""
        self._status = line
        line += self.suffix() + (waits.text if line else "")
        if self._followed:
            self._follow(JobReport(status=escaped_line(line)))
        elif self._live:
            width = shutil.get_terminal_size().columns - 1
            with self._writing:
                self._clear()
                sys.stderr.write(_fitting(escaped_line(line), width))
                sys.stderr.flush()
                self._shown = True
        elif not self._quiet:
            self._heartbeat.show(line)

    def _show_wait(self) -> None:
        if self._status:
            self.status(self._status)

    def close(self) -> None:
        """Stop the repetition of the status line."""
        self._status = ""
        self._heartbeat.stop()
        _opened.discard(self)

    def note(self, line: str) -> None:
        """Print a progress line to standard error; standard output is for results."""
        if not self._quiet:
            with self._writing:
                self._clear()
                self._write_note(line)
                self._heartbeat.postpone()

    @staticmethod
    def _write_note(line: str) -> None:
        print(escaped(line), file=sys.stderr, flush=True)

    def stage(self, stage: Stage) -> None:
        """Report that a stage of the work begins, to a program that follows."""
        self._follow(JobReport(stage=stage))

    def about(self, *, run: str = "", campaign: str = "") -> None:
        """Report where the results are, to a program that follows."""
        self._follow(JobReport(run=run, campaign=campaign))

    def _follow(self, report: JobReport) -> None:
        if self._followed:
            report.send()

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
