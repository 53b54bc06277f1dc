"""Run `ssr inject`: try candidates in order, several at a time, until enough are valid."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.projects import extensions_of_sources, is_dataset, projects_of, require_sources, scope_line
from harness.cli.terminal import Terminal
from harness.injectors.campaign_work import CampaignWork
from harness.injectors.lm import LmInjector, count_line, lm_injectors, lm_names
from harness.records.job_reports import Stage
from harness.selfplay.project import Project
from harness.settings.commands import InjectSettings
from harness.settings.survivors import ReviewSettings
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.ending import Cut, Ending
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.facts import facts_of
from pytest_ssr.campaign.findings import Findings, findings_of
from pytest_ssr.campaign.github import annotation_lines, append_job_summary, is_github
from pytest_ssr.campaign.parallel import GIVE_UP_AFTER, PER_CHANGE, run_candidates
from pytest_ssr.campaign.report import (
    display_path,
    ended_while_measuring,
    estimate_line,
    opening_lines,
    progress_line,
    result_line,
    shard_gate_line,
    time_is_up,
)
from pytest_ssr.campaign.report_files import ReportFiles
from pytest_ssr.campaign.results_json import results_json
from pytest_ssr.campaign.review import REVIEW_S, Review, changes_until, review_lines, review_of, survivors_with_remarks
from pytest_ssr.campaign.score import GateCode, Score, gate_line, score_of, scored_injectors
from pytest_ssr.campaign.shard_record import InjectionShard
from pytest_ssr.campaign.suggested_tests import Suggestions, suggest_tests, suggestion_lines, survivors_for_tests
from pytest_ssr.campaign.summary import SummaryStyle, summary_lines
from pytest_ssr.errors import NothingToDoError, SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.revision_filter import base_revision
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.progress import ProgressLines
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.records.candidate_result import CandidateResult, Goal
from pytest_ssr.sandbox.mirrors import use_mirrors
from pytest_ssr.settings import budget_seconds
from pytest_ssr.storage.free_space import require_space
from pytest_ssr.storage.store import Store


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a run has found, as its output needs it."""

    campaign: Campaign
    goal: Goal
    results: Sequence[CandidateResult]
    score: Score
    ending: Ending
    gate: float | None
    """The least score in percent that lets the run succeed; None if something else decides."""
    suggestions: Suggestions
    review: Review | None
    """None unless changed code alone was judged."""
    findings: Findings
    reports: Sequence[Path]
    """The files that were written."""
    budget_s: float | None

    @property
    def code(self) -> ExitCode:
        """The exit code."""
        if self.gate is not None:
            is_done = self.score.gate(self.gate) is GateCode.PASSED
        else:
            is_done = self.review is not None or self.goal.is_reached(self.results)
        return ExitCode.DONE if is_done else ExitCode.NO

    @property
    def models(self) -> list[LmInjector]:
        """The models that proposed changes."""
        return [injector for injector in self.campaign.injectors if isinstance(injector, LmInjector)]


def inject(settings: InjectSettings) -> int:
    """Create artifacts until enough are valid; return 0 if that many are, or if no code has changed, else 1."""
    return _inject(settings)


def _inject(settings: InjectSettings, *, is_compact: bool = False) -> int:
    """Return the exit code. is_compact: whether JSON has the remarks of a review, and not all changes."""
    require_sources([settings.repo], settings.instances, settings.execution, settings.typed)
    use_mirrors(settings.instances.mirror)
    extensions = extensions_of_sources([settings.repo], conftest=settings.conftest, ray=settings.ray)
    report_files = ReportFiles.open(html=settings.html, sarif=settings.sarif, stryker=settings.stryker)
    budget_s = budget_seconds(settings.time, option="--time") if settings.time else None
    if budget_s is None and settings.is_review and settings.limit is None:
        budget_s = REVIEW_S
    # A review's time begins when the tests have been measured.
    deadline = math.inf if budget_s is None or settings.is_review else time.monotonic() + budget_s
    terminal = Terminal(quiet=settings.json)
    with until(deadline):
        opened = _opened(settings, extensions, terminal, budget_s)
    if isinstance(opened, ExitCode):
        if opened is ExitCode.DONE:
            # There is nothing to do: what an earlier run found is not shown as if it were of this one.
            list(report_files.write(Findings.nothing(settings.repo)))
        return opened
    campaign, shard = opened
    changes_end = deadline
    if settings.is_review and budget_s is not None:
        deadline = time.monotonic() + budget_s
        changes_end = changes_until(deadline)
    goal = shard.goal if shard is not None else goal_of(settings)
    with until(changes_end):
        results = _run_candidates(settings, campaign, goal, shard, extensions, terminal)
    # After an interrupt of the search for tests, nothing more can be drawn.
    is_complete, reached = campaign.is_complete(results), goal.is_reached(results)
    out_of_time = not reached and not is_complete and time.monotonic() >= changes_end
    ending = Ending.of(goal, results, Cut.TIME if out_of_time else Cut.NOTHING, is_complete=is_complete)
    if shard is not None:
        shard.end(ending.cut)
    read, accepted = campaign.snapshot.read, campaign.acceptances
    score = score_of(results, read, goal, accepted, is_complete=is_complete, is_cut=out_of_time)
    # Of several shards, each has too few changes for a gate.
    is_part = settings.part is not None and not settings.part.is_whole
    for_tests = _survivors_for_tests(settings, campaign, results)
    suggestions = suggest_tests(campaign, for_tests, deadline=deadline, progress=terminal.status)
    reviewed = None
    if settings.is_review:
        reviewed = review_of(campaign, results, suggestions.tests, is_complete=reached or is_complete)
    findings = findings_of(campaign, results)
    reports = list(report_files.write(findings))
    if is_github(os.environ):
        append_job_summary(findings, os.environ)
    gate = None if is_part else settings.limit
    outcome = _Outcome(campaign, goal, results, score, ending, gate, suggestions, reviewed, findings, reports, budget_s)
    if settings.json:
        print(json.dumps(_json_of(outcome, settings, terminal.elapsed_s, is_compact=is_compact), indent=1))
    else:
        _show(outcome, settings, terminal)
    if suggestions.is_interrupted:
        raise KeyboardInterrupt
    return outcome.code


def _survivors_for_tests(
    settings: InjectSettings, campaign: Campaign, results: Sequence[CandidateResult]
) -> list[CandidateResult]:
    """Return the survivors that a test is looked for; in a review, those with remarks."""
    if settings.is_review and "suggest" not in settings.typed:
        return survivors_with_remarks(campaign, results)
    return survivors_for_tests(campaign, results, settings.suggest)


def _json_of(outcome: _Outcome, settings: InjectSettings, elapsed_s: float, *, is_compact: bool) -> dict[str, Any]:
    """Return what `--json` prints. is_compact: as for `_inject`."""
    campaign, reviewed = outcome.campaign, outcome.review
    content = results_json(
        facts_of(campaign),
        outcome.goal,
        outcome.results,
        outcome.score,
        read=campaign.snapshot.read,
        ending=outcome.ending,
        fail_under=outcome.gate,
        acceptances=campaign.acceptances,
        seconds=elapsed_s,
        store=campaign.store.root,
        shard=settings.part,
        suggestions=outcome.suggestions.tests,
    )
    if is_compact and reviewed is not None:
        return {"score": content["score"], **reviewed.to_json(), "exit": outcome.code}
    if outcome.models:
        content["replies"] = [model.to_json() for model in outcome.models]
    if reviewed is not None:
        content["review"] = reviewed.to_json()
    return content


def _show(outcome: _Outcome, settings: InjectSettings, terminal: Terminal) -> None:
    """Write what the run has found."""
    campaign, results, reviewed, goal = outcome.campaign, outcome.results, outcome.review, outcome.goal
    read, accepted = campaign.snapshot.read, campaign.acceptances
    for line in map(count_line, outcome.models):
        terminal.echo(line)
    style = SummaryStyle(settings.diffs, "--diffs", in_places=reviewed is None)
    for kind, line in summary_lines(facts_of(campaign), results, style, read=read, acceptances=accepted):
        terminal.echo(line, kind)
    suggested = outcome.suggestions.tests
    found = suggestion_lines(suggested) if reviewed is None else review_lines(reviewed, outcome.budget_s)
    for kind, line in found:
        terminal.echo(line, kind)
    terminal.echo(outcome.score.line, "heading")
    if outcome.gate is not None:
        terminal.echo(gate_line(outcome.score, outcome.gate), "valid" if outcome.code is ExitCode.DONE else "bad")
    elif settings.limit is not None and settings.part is not None:
        terminal.echo(shard_gate_line(settings.part, settings.limit))
    if outcome.ending.cut is Cut.TIME and outcome.budget_s is not None and reviewed is None:
        terminal.echo(time_is_up(outcome.budget_s, goal, results), "bad")
    elif not goal.changes and not goal.is_reached(results):
        terminal.echo("fewer than wanted: try another --seed or --injector", "bad")
    if not campaign.judges_only:
        terminal.echo(f"artifacts: {display_path(campaign.store.root / 'artifacts')}")
    for path in outcome.reports:
        terminal.echo(f"report: {display_path(path)}")
    if _annotates(settings):
        for line in annotation_lines(outcome.findings):
            terminal.echo(line)
    _show_ending(settings, outcome.ending, terminal)


def review(settings: ReviewSettings) -> int:
    """Review what has changed since a revision; the exit code is that of the gate, 0 without one."""
    require_directory(settings.repo)
    shared_ones = {item.name for item in fields(settings)} & {item.name for item in fields(InjectSettings)}
    values = {name: getattr(settings, name) for name in shared_ones}
    return _inject(InjectSettings(**values, diff=settings.rev or base_revision(settings.repo)), is_compact=True)


def _show_ending(settings: InjectSettings, ending: Ending, terminal: Terminal) -> None:
    """Write the last line: how many changes were tried."""
    part = f"shard {settings.part}: " if settings.part is not None else ""
    terminal.echo(f"{part}{ending.line}", "bad" if ending.cut else "")


def _opened(
    settings: InjectSettings, extensions: Extensions, terminal: Terminal, budget_s: float | None
) -> tuple[Campaign, InjectionShard | None] | ExitCode:
    """Return the campaign and its shard, or the exit code if the time ended before or there is nothing to do."""
    try:
        campaign = _open_campaign(settings, extensions, terminal)
        part = settings.part
        return campaign, InjectionShard(campaign, part, goal_of(settings), settings.limit) if part else None
    except TimeBudgetError:
        assert budget_s is not None
        if settings.json:
            ending = Ending.of(goal_of(settings), (), Cut.TIME).to_json()
            print(json.dumps({"wanted": settings.count, "valid": [], "time_is_up": True, "ending": ending}, indent=1))
        terminal.echo(ended_while_measuring(budget_s), "bad")
        return ExitCode.NO
    except NothingToDoError as error:
        if settings.json:
            remarks: dict[str, Any] = {"remarks": []} if settings.is_review else {}
            print(json.dumps({"wanted": settings.count, "valid": [], **remarks, "nothing_to_do": str(error)}, indent=1))
        terminal.echo(f"ssr: {error}")
        return ExitCode.DONE


def goal_of(settings: InjectSettings) -> Goal:
    """Return when the run has enough results."""
    if settings.part is not None:
        return Goal(settings.count, settings.changes, settings.part.indices(settings.changes))
    return Goal(settings.count, settings.changes if settings.limit is not None or settings.is_review else 0)


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
        injectors=scored_injectors(settings.injector) if goal_of(settings).changes else settings.injector,
        seed=settings.seed,
        sources=settings.source,
        tests=settings.tests,
        jobs=settings.jobs,
        revision=settings.diff,
        extra_injectors={**extensions.injectors(), **models},
        extra_sandboxes=extensions.sandboxes(),
        extra_checks=extensions.checks(),
        model_written=bool(lm_names(settings.injector)),
        judges_only=settings.judges_only,
        progress=ProgressLines(live=terminal.status, plain=terminal.note),
    )
    for kind, line in opening_lines(campaign):
        terminal.echo(line, kind)
    goal = goal_of(settings)
    if not goal.changes:
        campaign.require_artifacts()
    estimate = estimate_line(campaign, settings.count, settings.jobs)
    # With a gate or a shard, the number of changes decides how long the run takes.
    if estimate is not None and not goal.changes:
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
    settings: InjectSettings,
    campaign: Campaign,
    goal: Goal,
    shard: InjectionShard | None,
    extensions: Extensions,
    terminal: Terminal,
) -> list[CandidateResult]:
    reported: list[CandidateResult] = []
    terminal.stage(Stage.INJECT)
    terminal.about(campaign=campaign.key)

    def report(result: CandidateResult) -> None:
        reported.append(result)
        if not settings.is_review:
            terminal.echo(result_line(result), result.status.value, artifact=result.artifact_id)
        verdict = campaign.verdicts.get(result.artifact_id) if result.artifact_id else None
        if verdict is not None:
            extensions.observe(verdict)

    try:
        with (
            contextlib.closing(campaign),
            open_executor(settings.ray, settings.jobs, campaign.store, terminal) as executor,
        ):
            return run_candidates(
                campaign,
                goal,
                units=executor.units(CampaignWork(campaign)),
                most=PER_CHANGE * goal.changes or GIVE_UP_AFTER * goal.count,
                report=report,
                progress=lambda done: terminal.status(progress_line(done, goal, terminal.elapsed_s)),
            )
    except KeyboardInterrupt:
        if shard is not None:
            shard.end(Cut.INTERRUPT)
        _show_ending(settings, Ending.of(goal, reported, Cut.INTERRUPT), terminal)
        raise
