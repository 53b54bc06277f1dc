"""`ssr inject`: candidates tried in order, several at a time, until as many as wanted are valid."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

from harness.commands import DONE, NO
from harness.options import open_store, require_counts, running
from harness.terminal import Terminal
from harness.trying import GIVE_UP_AFTER, tried
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.campaign import Campaign
from pytest_ssr.errors import NothingToDoError
from pytest_ssr.opening import open_campaign
from pytest_ssr.progress import MeasuringLines
from pytest_ssr.report import (
    attempt_line,
    ended_while_measuring,
    estimate_line,
    missed,
    opening_lines,
    progress_line,
    rejections,
    shown,
    summary_lines,
    time_is_up,
)
from pytest_ssr.settings import budget_seconds
from pytest_ssr.snapshot import require_directory
from pytest_ssr.stopping import TimeIsUpError, until


def inject(arguments: argparse.Namespace) -> int:
    """Make artifacts until as many as wanted are valid; 0 if that number was reached or no code has changed, else 1."""
    require_counts(arguments, "count", "jobs")
    require_directory(arguments.repo)
    budget_s = budget_seconds(arguments.time, option="--time") if arguments.time else None
    deadline = math.inf if budget_s is None else time.monotonic() + budget_s
    terminal = Terminal(quiet=arguments.json)
    with until(deadline):
        try:
            campaign = _opened(arguments, terminal)
        except TimeIsUpError:
            assert budget_s is not None
            if arguments.json:
                print(json.dumps({"wanted": arguments.count, "valid": [], "time_is_up": True}, indent=1))
            terminal.say(ended_while_measuring(budget_s), "bad")
            return NO
        except NothingToDoError as error:
            if arguments.json:
                print(json.dumps({"wanted": arguments.count, "valid": [], "nothing_to_do": str(error)}, indent=1))
            terminal.say(f"ssr: {error}")
            return DONE
        attempts = _tried(arguments, campaign, terminal)
    valid = sum(a.status is AttemptStatus.VALID for a in attempts)
    reached = valid >= arguments.count
    late = not reached and time.monotonic() >= deadline
    if arguments.json:
        print(json.dumps({**_inject_json(campaign, attempts, arguments.count), "time_is_up": late}, indent=1))
        return DONE if reached else NO
    for kind, line in summary_lines(attempts, diffs=arguments.diffs, set_aside=campaign.set_aside_since()):
        terminal.say(line, kind)
    if late and budget_s is not None:
        terminal.say(time_is_up(budget_s, valid, arguments.count), "bad")
    elif not reached:
        terminal.say("fewer than wanted: try another --seed or --injector", "bad")
    terminal.say(f"artifacts: {shown(campaign.store.root / 'artifacts')}")
    return DONE if reached else NO


def _opened(arguments: argparse.Namespace, terminal: Terminal) -> Campaign:
    terminal.status("copying the project and measuring its tests")
    campaign = open_campaign(
        arguments.repo,
        open_store(arguments, arguments.repo),
        **running(arguments),
        injectors=arguments.injector,
        seed=arguments.seed,
        sources=arguments.source,
        tests=arguments.tests,
        jobs=arguments.jobs,
        revision=arguments.diff,
        progress=MeasuringLines(live=terminal.status if terminal.is_live else None, plain=terminal.note),
    )
    for kind, line in opening_lines(campaign):
        terminal.say(line, kind)
    estimate = estimate_line(campaign, arguments.count, arguments.jobs)
    if estimate is not None:
        terminal.say(estimate)
    return campaign


def _tried(arguments: argparse.Namespace, campaign: Campaign, terminal: Terminal) -> list[Attempt]:
    try:
        return tried(
            campaign,
            arguments.count,
            jobs=arguments.jobs,
            most=GIVE_UP_AFTER * arguments.count,
            tell=lambda a: terminal.say(attempt_line(a), a.status.value),
            progress=lambda done: terminal.status(progress_line(done, arguments.count, terminal.elapsed_s)),
        )
    finally:
        campaign.close()


def _inject_json(campaign: Campaign, attempts: Sequence[Attempt], count: int) -> dict[str, Any]:
    base = campaign.baseline
    return {
        "wanted": count,
        "valid": [a.artifact_id for a in attempts if a.status is AttemptStatus.VALID],
        "store": str(campaign.store.root),
        "tree_hash": campaign.snapshot.tree_hash,
        "sandbox": campaign.bench.provider.name,
        "baseline": {
            "collected": len(base.collected),
            "stable": len(base.stable),
            "set_aside": dict(base.set_aside),
            "seconds": base.seconds,
            "refused": dict(campaign.bench.warm.refusals) if campaign.bench.warm is not None else {},
        },
        "rejected": dict(rejections(attempts)),
        "missed": [
            {"path": path, "scope": scope, "changes": [a.to_json() for a in survivors]}
            for (path, scope), survivors in missed(attempts).items()
        ],
        "attempts": [a.to_json() for a in attempts],
    }
