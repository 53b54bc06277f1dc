"""Run `ssr inject`: try candidates in order, several at a time, until enough are valid."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

from harness.cli.commands.artifacts import DONE, NO
from harness.cli.options import open_store, require_counts, run_options
from harness.cli.terminal import Terminal
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
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
from pytest_ssr.errors import NothingToDoError
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.progress import ProgressLines
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.settings import budget_seconds


def inject(arguments: argparse.Namespace) -> int:
    """Create artifacts until enough are valid; return 0 if that many are, or if no code has changed, else 1."""
    require_counts(arguments, "count", "jobs")
    require_directory(arguments.repo)
    budget_s = budget_seconds(arguments.time, option="--time") if arguments.time else None
    deadline = math.inf if budget_s is None else time.monotonic() + budget_s
    terminal = Terminal(quiet=arguments.json)
    with until(deadline):
        try:
            campaign = _open_campaign(arguments, terminal)
        except TimeBudgetError:
            assert budget_s is not None
            if arguments.json:
                print(json.dumps({"wanted": arguments.count, "valid": [], "time_is_up": True}, indent=1))
            terminal.echo(ended_while_measuring(budget_s), "bad")
            return NO
        except NothingToDoError as error:
            if arguments.json:
                print(json.dumps({"wanted": arguments.count, "valid": [], "nothing_to_do": str(error)}, indent=1))
            terminal.echo(f"ssr: {error}")
            return DONE
        attempts = _run_candidates(arguments, campaign, terminal)
    valid = sum(a.status is CandidateStatus.VALID for a in attempts)
    reached = valid >= arguments.count
    out_of_time = not reached and time.monotonic() >= deadline
    if arguments.json:
        print(json.dumps({**_inject_json(campaign, attempts, arguments.count), "time_is_up": out_of_time}, indent=1))
        return DONE if reached else NO
    for kind, line in summary_lines(attempts, diffs=arguments.diffs, set_aside=campaign.set_aside_since()):
        terminal.echo(line, kind)
    if out_of_time and budget_s is not None:
        terminal.echo(time_is_up(budget_s, valid, arguments.count), "bad")
    elif not reached:
        terminal.echo("fewer than wanted: try another --seed or --injector", "bad")
    terminal.echo(f"artifacts: {display_path(campaign.store.root / 'artifacts')}")
    return DONE if reached else NO


def _open_campaign(arguments: argparse.Namespace, terminal: Terminal) -> Campaign:
    terminal.status("copying the project and measuring its tests")
    campaign = open_campaign(
        arguments.repo,
        open_store(arguments, arguments.repo),
        **run_options(arguments),
        injectors=arguments.injector,
        seed=arguments.seed,
        sources=arguments.source,
        tests=arguments.tests,
        jobs=arguments.jobs,
        revision=arguments.diff,
        progress=ProgressLines(live=terminal.status if terminal.is_live else None, plain=terminal.note),
    )
    for kind, line in opening_lines(campaign):
        terminal.echo(line, kind)
    estimate = estimate_line(campaign, arguments.count, arguments.jobs)
    if estimate is not None:
        terminal.echo(estimate)
    return campaign


def _run_candidates(arguments: argparse.Namespace, campaign: Campaign, terminal: Terminal) -> list[CandidateResult]:
    try:
        return run_candidates(
            campaign,
            arguments.count,
            jobs=arguments.jobs,
            most=GIVE_UP_AFTER * arguments.count,
            tell=lambda a: terminal.echo(result_line(a), a.status.value),
            progress=lambda done: terminal.status(progress_line(done, arguments.count, terminal.elapsed_s)),
        )
    finally:
        campaign.close()


def _inject_json(campaign: Campaign, attempts: Sequence[CandidateResult], count: int) -> dict[str, Any]:
    baseline = campaign.baseline
    return {
        "wanted": count,
        "valid": [a.artifact_id for a in attempts if a.status is CandidateStatus.VALID],
        "store": str(campaign.store.root),
        "tree_hash": campaign.snapshot.tree_hash,
        "sandbox": campaign.runner.provider.name,
        "baseline": {
            "collected": len(baseline.collected),
            "stable": len(baseline.stable),
            "set_aside": dict(baseline.set_aside),
            "seconds": baseline.seconds,
            "refused": dict(campaign.runner.fork_server.refusals) if campaign.runner.fork_server is not None else {},
        },
        "rejected": dict(rejections(attempts)),
        "missed": [
            {"path": path, "scope": scope, "changes": [a.to_json() for a in survivors]}
            for (path, scope), survivors in missed(attempts).items()
        ],
        "attempts": [a.to_json() for a in attempts],
    }
