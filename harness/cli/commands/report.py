"""Run `ssr report`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.commands.store import require_store
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import has_database, require_packages
from harness.settings.service import ReportSettings
from harness.storage.atomic_write import write_bytes
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError, StoreWriteError, os_error_advice

if TYPE_CHECKING:
    from harness.database.records import DatabaseRecords

_MIB = 1 << 20


def report(settings: ReportSettings) -> int:
    """Write the page."""
    require_packages()
    require_store(settings.store)
    from harness.service.dashboard.snapshot import snapshot

    terminal = Terminal(quiet=settings.json)
    with _records(settings.store, terminal) as records:
        run = _run_of(records, settings)
        title = f"Run {run[:12]}" if run else f"Results in {settings.store.absolute().name}"
        made = snapshot(records, title=title, run=run)
    data = made.html.encode()
    try:
        write_bytes(settings.html, data)
    except OSError as error:
        raise StoreWriteError(f"cannot write {settings.html}: {os_error_advice(error)}") from None
    if settings.json:
        summary = {"path": str(settings.html), "pages": made.pages, "left_out": made.left_out, "bytes": len(data)}
        print(json.dumps(summary, indent=1))
        return ExitCode.DONE
    left_out = f"; {made.left_out} artifacts and attempts have no page of their own" if made.left_out else ""
    terminal.echo(f"{display_path(settings.html)}: {made.pages} pages, {len(data) / _MIB:.1f} MiB{left_out}")
    return ExitCode.DONE


def _run_of(records: DatabaseRecords, settings: ReportSettings) -> str:
    from harness.service.dashboard.reading import Reads

    if not settings.run:
        return ""
    found = Reads(records).run_ids(settings.run)
    if len(found) == 1:
        return found[0]
    problem = "is the beginning of several runs; give more of it" if found else "is not a run of this store"
    raise SettingsError(f"--run {settings.run} {problem}", option="run")


@contextlib.contextmanager
def _records(root: Path, terminal: Terminal) -> Iterator[DatabaseRecords]:
    """Yield the records of a store; those of a folder alone are read into a database that is removed afterwards."""
    from harness.database.engine import close_engines
    from harness.database.migrate import migrate
    from harness.database.records import open_records, records_of

    if has_database(root):
        yield records_of(root)
        return
    with tempfile.TemporaryDirectory(prefix="ssr-report-") as folder:
        records = open_records(Path(folder), "sqlite", "", create=True)
        try:
            migrate(root, records, progress=terminal.status)
            yield records
        finally:
            close_engines()
