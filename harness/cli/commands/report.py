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
from pytest_ssr.campaign.findings import Findings, campaign_findings, stored_findings
from pytest_ssr.campaign.report import display_path
from pytest_ssr.campaign.report_files import ReportFiles, page_path
from pytest_ssr.errors import SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.options import STORE_MARK
from pytest_ssr.progress import counted
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.storage.store import Store

if TYPE_CHECKING:
    from harness.database.records import DatabaseRecords

_MIB = 1 << 20


def report(settings: ReportSettings) -> int:
    """Write the page."""
    if (settings.path / STORE_MARK).is_file():
        return _report_store(settings)
    return _report_project(settings)


def _report_project(settings: ReportSettings) -> int:
    """Write what the last run of `ssr inject`, or of the plugin, found in a project."""
    if settings.run:
        raise SettingsError("--run is for a store; name one, such as .ssr", option="run")
    require_directory(settings.path)
    files = ReportFiles.open(html=settings.html)
    root = settings.store or settings.path / ".ssr"
    require_store(root)
    return _write_findings(settings, files, stored_findings(Store(root), settings.path))


def _write_findings(settings: ReportSettings, files: ReportFiles, findings: Findings) -> int:
    (path,) = files.write(findings)
    score, size = findings.score_of(findings.results), path.stat().st_size
    if settings.json:
        low, high = score.interval
        counts = {"noticed": score.noticed, "tried": score.tried, "rate": score.rate, "low": low, "high": high}
        print(json.dumps({"path": str(path), **counts, "bugs": len(findings.bugs), "bytes": size}, indent=1))
    else:
        Terminal().echo(
            f"{display_path(path)}: {score.noticed} of {counted(score.tried, 'change')} noticed, "
            f"{counted(len(findings.bugs), 'proven bug')}, {size / _MIB:.1f} MiB"
        )
    return ExitCode.DONE


def _report_store(settings: ReportSettings) -> int:
    require_packages()
    from harness.service.dashboard.snapshot import snapshot

    findings = campaign_findings(Store(settings.path), settings.run) if settings.run else None
    if findings is not None:
        return _write_findings(settings, ReportFiles.open(html=settings.html), findings)
    terminal = Terminal(quiet=settings.json)
    page = page_path(settings.html)
    with _records(settings.path, terminal) as records:
        run = _run_of(records, settings)
        title = f"Run {run[:12]}" if run else f"Results in {settings.path.absolute().name}"
        made = snapshot(records, title=title, run=run)
    data = made.html.encode()
    try:
        write_bytes(page, data)
    except OSError as error:
        raise StoreWriteError(f"cannot write {page}: {os_error_advice(error)}") from None
    if settings.json:
        summary = {"path": str(page), "pages": made.pages, "left_out": made.left_out, "bytes": len(data)}
        print(json.dumps(summary, indent=1))
        return ExitCode.DONE
    left_out = f"; {made.left_out} artifacts and attempts have no page of their own" if made.left_out else ""
    terminal.echo(f"{display_path(page)}: {made.pages} pages, {len(data) / _MIB:.1f} MiB{left_out}")
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
