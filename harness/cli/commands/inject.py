"""Run `ssr inject`: try candidates in order, several at a time, until enough are valid."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from itertools import islice
from pathlib import Path

from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.projects import extensions_of_sources, is_dataset, projects_of, require_sources, scope_line
from harness.cli.terminal import Terminal
from harness.injectors.campaign_work import CampaignWork
from harness.injectors.lm import LmInjector, count_line, lm_injectors, lm_names
from harness.records.job_reports import Stage
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
    opening_lines,
    progress_line,
    result_line,
    time_is_up,
)
from pytest_ssr.campaign.report_files import ReportFiles
from pytest_ssr.campaign.results_json import results_json
from pytest_ssr.campaign.score import GateCode, gate_line, score_of, scored_injectors
from pytest_ssr.campaign.suggested_tests import suggest_tests, suggestion_lines
from pytest_ssr.campaign.summary import SummaryStyle, summary_lines
from pytest_ssr.errors import NothingToDoError, SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.progress import ProgressLines
from pytest_ssr.records.candidate_result import CandidateResult, Goal
from pytest_ssr.sandbox.mirrors import use_mirrors
from pytest_ssr.settings import budget_seconds
from pytest_ssr.storage.free_space import require_space
from pytest_ssr.storage.store import Store

_PER_CHANGE = 3
"""Candidates for each change to try: some time out, and some are not exercised."""


def inject(settings: InjectSettings) -> int:
    """Create artifacts until enough are valid; return 0 if that many are, or if no code has changed, else 1."""
    require_sources([settings.repo], settings.instances, settings.execution, settings.typed)
    use_mirrors(settings.instances.mirror)
    extensions = extensions_of_sources([settings.repo], conftest=settings.conftest, ray=settings.ray)
    report_files = ReportFiles.open(html=settings.html, sarif=settings.sarif)
    budget_s = budget_seconds(settings.time, option="--time") if settings.time else None
    deadline = math.inf if budget_s is None else time.monotonic() + budget_s
    terminal = Terminal(quiet=settings.json)
    with until(deadline):
        campaign = _opened(settings, extensions, terminal, budget_s)
        if isinstance(campaign, ExitCode):
            return campaign
        results = _run_candidates(settings, campaign, extensions, terminal)
    goal = goal_of(settings)
    # After an interrupt of the search for tests, nothing more can be drawn.
    is_complete = campaign.is_complete(results)
    score = score_of(results, campaign.snapshot.read, goal, campaign.acceptances, is_complete=is_complete)
    suggestions = suggest_tests(campaign, results, settings.suggest, deadline=deadline, progress=terminal.status)
    findings = findings_of(campaign, results)
    reports = list(report_files.write(findings))
    if is_github(os.environ):
        append_job_summary(findings, os.environ)
    reached = goal.is_reached(results)
    out_of_time = not reached and time.monotonic() >= deadline
    done = score.gate(settings.limit) is GateCode.PASSED if settings.limit is not None else reached
    models = [injector for injector in campaign.injectors if isinstance(injector, LmInjector)]
    if settings.json:
        content = results_json(
            campaign,
            goal,
            results,
            score,
            fail_under=settings.limit,
            seconds=terminal.elapsed_s,
            time_is_up=out_of_time,
            suggestions=suggestions.tests,
        )
        replies = {"replies": [model.to_json() for model in models]} if models else {}
        print(json.dumps({**content, **replies}, indent=1))
        if suggestions.is_interrupted:
            raise KeyboardInterrupt
        return ExitCode.DONE if done else ExitCode.NO
    for line in map(count_line, models):
        terminal.echo(line)
    for kind, line in summary_lines(campaign, results, SummaryStyle(settings.diffs, "--diffs")):
        terminal.echo(line, kind)
    for kind, line in suggestion_lines(suggestions.tests):
        terminal.echo(line, kind)
    terminal.echo(score.line, "heading")
    if settings.limit is not None:
        terminal.echo(gate_line(score, settings.limit), "valid" if done else "bad")
    if out_of_time and budget_s is not None:
        terminal.echo(time_is_up(budget_s, goal, results), "bad")
    elif not reached and not goal.changes:
        terminal.echo("fewer than wanted: try another --seed or --injector", "bad")
    if not campaign.judges_only:
        terminal.echo(f"artifacts: {display_path(campaign.store.root / 'artifacts')}")
    for path in reports:
        terminal.echo(f"report: {display_path(path)}")
    if _annotates(settings):
        for line in annotation_lines(findings):
            terminal.echo(line)
    if suggestions.is_interrupted:
        raise KeyboardInterrupt
    return ExitCode.DONE if done else ExitCode.NO


def _opened(
    settings: InjectSettings, extensions: Extensions, terminal: Terminal, budget_s: float | None
) -> Campaign | ExitCode:
    """Return the campaign, or the exit code if the time ended before it began or there is nothing to do."""
    try:
        return _open_campaign(settings, extensions, terminal)
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


def goal_of(settings: InjectSettings) -> Goal:
    """Return when the run has enough results."""
    return Goal(settings.count, settings.changes if settings.limit is not None else 0)


def _annotates(settings: InjectSettings) -> bool:
    if settings.annotations == "auto":
        return is_github(os.environ) and settings.diff is not None
    return settings.annotations == "on"


def _open_campaign(settings: InjectSettings, extensions: Extensions, terminal: Terminal) -> Campaign:
    terminal.stage(Stage.MEASURE)
    terminal.status("copying the project and measuring its tests")
    root = settings.store or (Path() if is_dataset(settings.repo) else settings.repo) / ".ssr"
    models = lm_injectors(settings.injector, root)
    require_space(root, "store")
    store = Store(root)
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
        injectors=settings.injector if settings.limit is None else scored_injectors(settings.injector),
        seed=settings.seed,
        sources=settings.source,
        tests=settings.tests,
        jobs=settings.jobs,
        revision=settings.diff,
        extra_injectors={**extensions.injectors(), **models},
        extra_sandboxes=extensions.sandboxes(),
        extra_checks=extensions.checks(),
        model_written=bool(lm_names(settings.injector)),
        judges_only=settings.limit is not None and "count" not in settings.typed,
        progress=ProgressLines(live=terminal.status, plain=terminal.note),
    )
    for kind, line in opening_lines(campaign):
        terminal.echo(line, kind)
    if settings.limit is None:
        campaign.require_artifacts()
    estimate = estimate_line(campaign, settings.count, settings.jobs)
    # With a gate, the number of changes decides how long the run takes.
    if estimate is not None and settings.limit is None:
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


def _run_candidates(
    settings: InjectSettings, campaign: Campaign, extensions: Extensions, terminal: Terminal
) -> list[CandidateResult]:
    goal = goal_of(settings)
    terminal.stage(Stage.INJECT)
    terminal.about(campaign=campaign.key)

    def report(result: CandidateResult) -> None:
        terminal.echo(result_line(result), result.status.value, artifact=result.artifact_id)
        verdict = campaign.verdicts.get(result.artifact_id) if result.artifact_id else None
        if verdict is not None:
            extensions.observe(verdict)

    with (
        contextlib.closing(campaign),
        open_executor(settings.ray, settings.jobs, campaign.store, terminal) as executor,
    ):
        return run_candidates(
            campaign,
            goal,
            units=executor.units(CampaignWork(campaign)),
            most=_PER_CHANGE * goal.changes or GIVE_UP_AFTER * goal.count,
            report=report,
            progress=lambda done: terminal.status(progress_line(done, goal, terminal.elapsed_s)),
        )
