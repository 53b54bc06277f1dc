"""Run `ssr static-bugs`: write the rows of static bugs, and report their numbers."""

from __future__ import annotations

import json
import time

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.settings.training import StaticBugsSettings
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import ProjectError
from pytest_ssr.storage.free_space import require_space


def write_static_bugs(settings: StaticBugsSettings) -> int:
    """Write the rows; return 0."""
    load_injectors(settings.injector)
    require_space(settings.out.parent, "out")
    from harness.training.language.contamination import Excluded
    from harness.training.search.sources import open_sources
    from harness.training.writer.row_file import RowSettings, write_row_file

    terminal = Terminal(quiet=settings.json)
    excluded = Excluded(settings.exclude)
    sources = []
    for source in open_sources(settings.source):
        if excluded.has(source.name):
            terminal.note(f"{source.folder} is left out: {source.name} is excluded, or in an evaluation set")
        else:
            sources.append(source)
    if not sources:
        raise ProjectError("there is no project left to make bugs in")
    rows = RowSettings(
        settings.injector, settings.per_project, settings.count, settings.seed, settings.jobs, settings.role
    )
    start = time.monotonic()
    with writing(settings.out):
        report = write_row_file(sources, settings.out, rows, terminal.status)
    speed = report.made / max(1e-9, time.monotonic() - start)
    if settings.json:
        print(json.dumps({"file": str(settings.out), **report.to_json(), "rows_per_second": round(speed, 1)}, indent=1))
        return ExitCode.DONE
    for name, count in report.projects.items():
        terminal.echo(f"{name}: {count} rows")
    terminal.echo(
        f"{report.rows} rows of {len(report.projects)} projects; {report.made} made now, {speed:.0f} a second"
    )
    terminal.echo(f"rows: {settings.out}; train on them: ssr train sft {settings.out} --model smollm2")
    return ExitCode.DONE
