"""Run `ssr inject`: try candidates in order, several at a time, until enough are valid."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.projects import is_dataset, projects_of, require_sources, scope_line
from harness.cli.terminal import Terminal
from harness.injectors.campaign_work import CampaignWork
from harness.selfplay.project import Project
from harness.settings.commands import InjectSettings
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.findings import findings_of
from pytest_ssr.campaign.github import annotation_lines, append_job_summary, is_github
from pytest_ssr.campaign.parallel import GIVE_UP_AFTER, run_candidates
from pytest_ssr.campaign.report import (
    display_path,
    ended_while_measuring,
    estimate_line,
    missed,
    opening_lines,
    progress_line,
    rejections,
    result_line,
    summary_lines,
    time_is_up,
)
from pytest_ssr.campaign.report_files import ReportFiles
from pytest_ssr.errors import NothingToDoError, SettingsError
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.progress import ProgressLines
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.settings import budget_seconds
from pytest_ssr.storage.store import Store


def inject(settings: InjectSettings) -> int:
    """Create artifacts until enough are valid; return 0 if that many are, or if no code has changed, else 1."""
    require_sources([settings.repo], settings.instances, settings.execution, settings.typed)
    report_files = ReportFiles.open(html=settings.html, sarif=settings.sarif)
    budget_s = budget_seconds(settings.time, option="--time") if settings.time else None
    deadline = math.inf if budget_s is None else time.monotonic() + budget_s
    terminal = Terminal(quiet=settings.json)
    with until(deadline):
        try:
            campaign = _open_campaign(settings, terminal)
        except TimeBudgetError:
            assert budget_s is not None
            if settings.json:
                print(json.dumps({"wanted": settings.count, "valid": [], "time_is_up": True}, indent=1))
            terminal.echo(ended_while_measuring(budget_s), "bad")
            return ExitCode.NO
        except NothingToDoError as error:
            if settings.json:
                print(json.dumps({"wanted": settings.count, "valid": [], "nothing_to_do": str(error)}, indent=1))
            terminal.echo(f"ssr: {error}")
            return ExitCode.DONE
        attempts = _run_candidates(settings, campaign, terminal)
    findings = findings_of(campaign, attempts)
    reports = list(report_files.write(findings))
    if is_github(os.environ):
        append_job_summary(findings, os.environ)
    valid = sum(a.status is CandidateStatus.VALID for a in attempts)
    reached = valid >= settings.count
    out_of_time = not reached and time.monotonic() >= deadline
    if settings.json:
        print(json.dumps({**_inject_json(campaign, attempts, settings.count), "time_is_up": out_of_time}, indent=1))
        return ExitCode.DONE if reached else ExitCode.NO
    for kind, line in summary_lines(attempts, diffs=settings.diffs, set_aside=campaign.set_aside_since()):
        terminal.echo(line, kind)
    if out_of_time and budget_s is not None:
        terminal.echo(time_is_up(budget_s, valid, settings.count), "bad")
    elif not reached:
        terminal.echo("fewer than wanted: try another --seed or --injector", "bad")
    terminal.echo(f"artifacts: {display_path(campaign.store.root / 'artifacts')}")
    for path in reports:
        terminal.echo(f"report: {display_path(path)}")
    if _annotates(settings):
        for line in annotation_lines(findings):
            terminal.echo(line)
    return ExitCode.DONE if reached else ExitCode.NO


def _annotates(settings: InjectSettings) -> bool:
    if settings.annotations == "auto":
        return is_github(os.environ) and settings.diff is not None
    return settings.annotations == "on"


def _open_campaign(settings: InjectSettings, terminal: Terminal) -> Campaign:
    terminal.status("copying the project and measuring its tests")
    store = Store(settings.store or (Path() if is_dataset(settings.repo) else settings.repo) / ".ssr")
    project = _project(settings, store, terminal)
    if line := scope_line(project):
        terminal.echo(line)
    options = settings.execution.run_options(per_hunk=settings.per_hunk)
    campaign = open_campaign(
        project.folder,
        store,
        settings=options["settings"],
        sandbox=project.sandbox or options["sandbox"],
        python=project.python or options["python"],
        test_runner=project.test_runner,
        injectors=settings.injector,
        seed=settings.seed,
        sources=settings.source,
        tests=settings.tests,
        jobs=settings.jobs,
        revision=settings.diff,
        progress=ProgressLines(live=terminal.status if terminal.is_live else None, plain=terminal.note),
    )
    for kind, line in opening_lines(campaign):
        terminal.echo(line, kind)
    estimate = estimate_line(campaign, settings.count, settings.jobs)
    if estimate is not None:
        terminal.echo(estimate)
    return campaign


def _project(settings: InjectSettings, store: Store, terminal: Terminal) -> Project:
    """Return the project; raises SettingsError if several instances of a dataset are selected."""
    python = settings.execution.python
    projects = list(
        islice(projects_of(settings.repo, store, settings.selection, settings.instances, python, terminal.status), 2)
    )
    if len(projects) > 1:
        raise SettingsError(
            f"{settings.repo} has several instances; select one, as in --only ID or --slice 3:4", option="only"
        )
    return projects[0]


def _run_candidates(settings: InjectSettings, campaign: Campaign, terminal: Terminal) -> list[CandidateResult]:
    with (
        contextlib.closing(campaign),
        open_executor(settings.ray, settings.jobs, campaign.store, terminal) as executor,
    ):
        return run_candidates(
            campaign,
            settings.count,
            units=executor.units(CampaignWork(campaign)),
            most=GIVE_UP_AFTER * settings.count,
            report=lambda a: terminal.echo(result_line(a), a.status.value),
            progress=lambda done: terminal.status(progress_line(done, settings.count, terminal.elapsed_s)),
        )


def _inject_json(campaign: Campaign, attempts: Sequence[CandidateResult], count: int) -> dict[str, Any]:
    baseline, server = campaign.baseline, campaign.runner.fork_server
    refusals = server.refusals if server is not None else {}
    return {
        "wanted": count,
        "valid": [a.artifact_id for a in attempts if a.status is CandidateStatus.VALID],
        "store": str(campaign.store.root),
        "tree_hash": campaign.snapshot.tree_hash,
        "sandbox": campaign.runner.provider.name,
        "test_runner": campaign.runner.test_runner.name,
        "scope": list(campaign.runner.test_runner.scope),
        "baseline": {
            "collected": len(baseline.collected),
            "stable": len(baseline.stable),
            "set_aside": dict(baseline.set_aside),
            "seconds": baseline.seconds,
            "refused": {mode: refusal.to_json() for mode, refusal in refusals.items()},
        },
        "rejected": dict(rejections(attempts)),
        "missed": [
            {"path": path, "scope": scope, "changes": [a.to_json() for a in survivors]}
            for (path, scope), survivors in missed(attempts).items()
        ],
        "attempts": [a.to_json() for a in attempts],
    }
