"""Run `ssr accept` and `ssr feedback`: decide about survivors, and show what was decided; return an exit code."""

from __future__ import annotations

import json
from datetime import date

from harness.cli.commands.store import require_store
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.settings.survivors import AcceptSettings, FeedbackSettings
from pytest_ssr import __version__
from pytest_ssr.campaign.acceptances import (
    Acceptance,
    AcceptanceKind,
    Acceptances,
    add_acceptances,
    only_id,
    read_acceptances,
    remove_acceptances,
)
from pytest_ssr.campaign.findings import stored_findings
from pytest_ssr.progress import counted
from pytest_ssr.project.report_marks import ACCEPTED_FILE
from pytest_ssr.project.snapshot import require_directory, take_snapshot
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.storage.store import Store


def accept(settings: AcceptSettings) -> int:
    """Add entries to the project's file, remove some, or list them."""
    terminal = Terminal()
    require_directory(settings.repo)
    acceptances = read_acceptances(settings.repo)
    if settings.remove:
        ids = [only_id(name, [entry.id for entry in acceptances.entries], ACCEPTED_FILE) for name in settings.ids]
        remove_acceptances(settings.repo, ids)
        terminal.echo(f"removed from {ACCEPTED_FILE}: {', '.join(ids)}")
    elif settings.ids:
        _add(settings, terminal)
    elif settings.prune:
        stale = [entry.id for entry in _checked(settings, acceptances).stale]
        remove_acceptances(settings.repo, stale)
        terminal.echo(f"removed from {ACCEPTED_FILE}: {', '.join(stale) or 'nothing, no entry is stale'}")
    else:
        _list(settings, acceptances, terminal)
    return ExitCode.DONE


def feedback(settings: FeedbackSettings) -> int:
    """Print one object for each entry of the project's file: no code, no names, no reasons."""
    require_directory(settings.repo)
    for entry in read_acceptances(settings.repo).entries:
        print(json.dumps({"version": __version__, "kind": str(entry.kind), "operator": entry.operator}))
    return ExitCode.DONE


def _add(settings: AcceptSettings, terminal: Terminal) -> None:
    root = settings.store or settings.repo / ".ssr"
    require_store(root)
    findings = stored_findings(Store(root), settings.repo)
    survivors = findings.by_identity
    chosen = [survivors[only_id(name, survivors, "the last run")] for name in settings.ids]
    kind = AcceptanceKind(settings.kind)
    add_acceptances(
        settings.repo, [Acceptance.of(result, kind, settings.reason.strip(), settings.until_date) for result in chosen]
    )
    for result in chosen:
        terminal.echo(f"{kind}: {_shown(result)}", "valid")
    terminal.echo(f"{ACCEPTED_FILE}: {counted(len(chosen), 'survivor')} accepted; commit the file")


def _checked(settings: AcceptSettings, acceptances: Acceptances) -> Acceptances:
    root = settings.store or settings.repo / ".ssr"
    return acceptances.checked(take_snapshot(settings.repo, Store(root).trees))


def _list(settings: AcceptSettings, acceptances: Acceptances, terminal: Terminal) -> None:
    if not acceptances.entries:
        terminal.echo(f"{ACCEPTED_FILE} has no entries; accept a survivor of the last run: ssr accept ID --reason TEXT")
        return
    stale = {entry.id for entry in _checked(settings, acceptances).stale}
    for entry in acceptances.entries:
        state = "stale" if entry.id in stale else "ended" if acceptances.has_ended(entry) else _until(entry.until)
        terminal.echo(
            f"{entry.id}  {entry.kind}{state and f' ({state})'}  {entry.path} {entry.function}  {entry.reason}"
        )


def _until(day: date | None) -> str:
    return f"until {day.isoformat()}" if day is not None else ""


def _shown(result: CandidateResult) -> str:
    return f"{result.identity}  {result.path}:{result.line} {result.scope}: {result.operator} {result.detail}".rstrip()
