"""Run `ssr prove`: make artifacts of changes that an earlier run only judged."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from functools import cache
from itertools import islice

from harness.cli.commands.store import require_store
from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.injectors.campaign_work import CampaignWork
from harness.records.job_reports import Stage
from harness.settings.survivors import ProveSettings
from pytest_ssr.campaign.acceptances import only_id
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.findings import stored_findings
from pytest_ssr.campaign.parallel import run_candidates
from pytest_ssr.campaign.report import display_path, opening_lines, progress_line, result_line
from pytest_ssr.errors import NoRunError
from pytest_ssr.injectors.recorded import RecordedInjector, changes_of, identity_of_result
from pytest_ssr.progress import ProgressLines, counted
from pytest_ssr.project.snapshot import Snapshot, require_directory, take_snapshot
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.storage.free_space import require_space
from pytest_ssr.storage.store import Store


def prove(settings: ProveSettings) -> int:
    """Make artifacts of noticed changes; return 0 if as many are valid as were wanted, else 1."""
    require_directory(settings.repo)
    terminal = Terminal(quiet=settings.json)
    root = settings.store or settings.repo / ".ssr"
    require_store(root)
    require_space(root, "store")
    store = Store(root)
    snapshot = take_snapshot(settings.repo, store.trees)
    noticed = _noticed(store, settings, snapshot)
    read = cache(snapshot.read)
    if settings.list:
        _list(noticed, snapshot, settings, terminal)
        return ExitCode.DONE
    chosen = noticed
    if settings.ids:
        # Equal functions in two files have changes of the same id.
        by_id: dict[str, list[CandidateResult]] = {}
        for result in noticed:
            by_id.setdefault(identity_of_result(result, read), []).append(result)
        ids = [only_id(name, by_id, "the last run", "noticed change") for name in settings.ids]
        chosen = [result for name in dict.fromkeys(ids) for result in by_id[name]]
    goal = Goal(len(chosen) if settings.ids else settings.count)
    results = _run(settings, store, chosen, goal, terminal)
    proven = [result for result in results if result.status is CandidateStatus.VALID]
    others = [result for result in results if result.status is not CandidateStatus.VALID]
    unreadable = [result for result in chosen if changes_of(result, read) is None]
    is_done = goal.is_reached(results)
    if settings.json:
        content = {
            "wanted": goal.count,
            "artifacts": [_to_json(result, snapshot) | {"artifact": result.artifact_id} for result in proven],
            "not_proven": [_to_json(result, snapshot) | {"reason": result.explanation} for result in others],
            "unreadable": [_to_json(result, snapshot) for result in unreadable],
            "store": str(root),
        }
        print(json.dumps(content, indent=1))
        return ExitCode.DONE if is_done else ExitCode.NO
    for result in unreadable:
        terminal.echo(f"{_place(result)}: its recorded diff does not apply, so it cannot be proven", "missed")
    terminal.echo(f"{len(proven)} of {counted(len(results), 'tried change')} became artifacts", "heading")
    terminal.echo(f"artifacts: {display_path(root / 'artifacts')}")
    return ExitCode.DONE if is_done else ExitCode.NO


def _noticed(store: Store, settings: ProveSettings, snapshot: Snapshot) -> Sequence[CandidateResult]:
    """Return the changes that the last run noticed without proving them; raises NoRunError without any."""
    findings = stored_findings(store, settings.repo)
    if findings.campaign.tree_hash != snapshot.tree_hash:
        raise NoRunError("the project has changed since the last run, which may not hold for it: run it again")
    noticed = [result for result in findings.results if result.status is CandidateStatus.NOTICED]
    if not noticed:
        raise NoRunError(
            "the last run has no noticed changes without an artifact; a review, or a run with --fail-under or "
            "--fail-on, has some"
        )
    return noticed


def _run(
    settings: ProveSettings, store: Store, chosen: Sequence[CandidateResult], goal: Goal, terminal: Terminal
) -> list[CandidateResult]:
    terminal.stage(Stage.MEASURE)
    options = settings.execution.run_options()
    campaign = open_campaign(
        settings.repo,
        store,
        **options,
        injectors=RecordedInjector.name,
        extra_injectors={RecordedInjector.name: RecordedInjector(chosen)},
        tests=settings.tests,
        jobs=settings.jobs,
        progress=ProgressLines(live=terminal.status, plain=terminal.note),
        is_reported=False,
    )
    terminal.stage(Stage.INJECT)
    with contextlib.closing(campaign), open_executor("", settings.jobs, store, terminal) as executor:
        for kind, line in islice(opening_lines(campaign), 1):
            terminal.echo(line, kind)
        campaign.require_artifacts()
        return run_candidates(
            campaign,
            goal,
            units=executor.units(CampaignWork(campaign)),
            most=len(chosen),
            report=lambda result: terminal.echo(result_line(result), result.status.value, artifact=result.artifact_id),
            progress=lambda done: terminal.status(progress_line(done, goal, terminal.elapsed_s)),
        )


def _list(noticed: Sequence[CandidateResult], snapshot: Snapshot, settings: ProveSettings, terminal: Terminal) -> None:
    if settings.json:
        print(json.dumps({"noticed": [_to_json(result, snapshot) for result in noticed]}, indent=1))
        return
    read = cache(snapshot.read)
    for result in noticed:
        terminal.echo(f"{identity_of_result(result, read) or '-'}  {_place(result)}")


def _place(result: CandidateResult) -> str:
    return f"{result.path}:{result.line} {result.scope}: {result.operator} {result.detail}".rstrip()


def _to_json(result: CandidateResult, snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": identity_of_result(result, snapshot.read),
        "path": result.path,
        "line": result.line,
        "function": result.scope,
        "operator": result.operator,
        "detail": result.detail,
        "diff": result.diff,
    }
