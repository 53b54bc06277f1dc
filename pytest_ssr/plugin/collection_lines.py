"""Replace what pytest and xdist write about collected items: candidates are offered, not wanted, in hundreds."""

from __future__ import annotations

from typing import Any


def replace_collection_lines(terminal: Any, line: str) -> None:
    """Make pytest write one line of this package in place of `collecting ...` and `collected N items`."""

    def report_collect(final: bool = False) -> None:
        if not final or terminal.config.option.verbose < 0:
            return
        if terminal.isatty:
            # pytest has written `collecting ... ` without an end of line.
            terminal.rewrite(line, erase=True)
            terminal.write("\n")
        else:
            terminal.ensure_newline()
            terminal.write_line(line)

    terminal.report_collect = report_collect


def replace_worker_lines(workers: Any, line: str) -> None:
    """Make xdist write one line when its workers are ready, and none before. workers: its terminal reporter."""

    def getstatus() -> str:
        return line

    def ensure_show_status() -> None:
        counts = [collected for _, collected in workers._status.values()]
        if not workers._isatty and counts and all(counts):
            workers.write_line(line)

    workers.getstatus = getstatus
    workers.ensure_show_status = ensure_show_status
