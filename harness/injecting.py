"""`ssr inject`: candidates tried in order, several at a time, until as many as wanted are valid."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import takewhile
from typing import Any

from harness.commands import DONE, NO, rule_settings
from harness.terminal import Terminal
from pytest_ssr.attempt import Attempt, AttemptStatus, counted
from pytest_ssr.campaign import Campaign
from pytest_ssr.errors import SettingsError
from pytest_ssr.opening import open_campaign
from pytest_ssr.report import attempt_line, missed, opening_lines, progress_line, rejections, shown, summary_lines
from pytest_ssr.snapshot import require_directory
from pytest_ssr.store import Store

_GIVE_UP_AFTER = 60


def inject(arguments: argparse.Namespace) -> int:
    """Make artifacts until as many as wanted are valid; 0 when that number was reached, else 1."""
    if arguments.count < 1 or arguments.jobs < 1:
        raise SettingsError(f"--count and --jobs must be at least 1, not {arguments.count} and {arguments.jobs}")
    require_directory(arguments.repo)
    terminal = Terminal(quiet=arguments.json)
    terminal.status("copying the project and measuring its tests (three runs)")
    campaign = open_campaign(
        arguments.repo,
        Store(arguments.store or arguments.repo / ".ssr"),
        settings=rule_settings(arguments),
        injectors=arguments.injector,
        seed=arguments.seed,
        sandbox=arguments.sandbox,
        python=arguments.python,
        sources=arguments.source,
        tests=arguments.tests,
    )
    for kind, line in opening_lines(campaign):
        terminal.say(line, kind)
    try:
        attempts = _attempts(campaign, arguments.count, arguments.jobs, terminal)
    finally:
        campaign.close()
    reached = sum(a.status is AttemptStatus.VALID for a in attempts) >= arguments.count
    if arguments.json:
        print(json.dumps(_inject_json(campaign, attempts, arguments.count), indent=1))
    else:
        for kind, line in summary_lines(attempts, diffs=arguments.diffs):
            terminal.say(line, kind)
        if not reached:
            terminal.say("fewer than wanted: try another --seed or --injector", "bad")
        terminal.say(f"artifacts: {shown(campaign.store.root / 'artifacts')}")
    return DONE if reached else NO


def _attempts(campaign: Campaign, count: int, jobs: int, terminal: Terminal) -> list[Attempt]:
    """Try candidates in order, `jobs` at a time, until `count` in that order are valid."""
    done: dict[int, Attempt] = {}
    running: set[Future[Attempt | None]] = set()
    following, last = 0, _GIVE_UP_AFTER * count
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                prefix = counted(_unbroken(done), count)
                enough = sum(a.status is AttemptStatus.VALID for a in prefix) >= count
                while not enough and len(running) < jobs and following < last:
                    running.add(pool.submit(campaign.attempt, following))
                    following += 1
                if enough or not running:
                    break
                terminal.status(progress_line(prefix, count, terminal.elapsed_s))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for attempt in (f.result() for f in finished):
                    if attempt is None:
                        last = following
                    else:
                        done[attempt.index] = attempt
                        terminal.say(attempt_line(attempt), attempt.status.value)
        finally:
            campaign.ending.set()
        late = [f.result() for f in running if not f.cancel()]
    campaign.settle(prefix, [*done.values(), *(a for a in late if a is not None)])
    return prefix


def _unbroken(done: Mapping[int, Attempt]) -> list[Attempt]:
    """Return the attempts from the first on, up to the first that is not there yet."""
    return [done[i] for i in takewhile(done.__contains__, range(len(done)))]


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
            "cold": dict(base.cold),
        },
        "rejected": dict(rejections(attempts)),
        "missed": [
            {"path": path, "scope": scope, "changes": [a.to_json() for a in survivors]}
            for (path, scope), survivors in missed(attempts).items()
        ],
        "attempts": [a.to_json() for a in attempts],
    }
