"""Say what reports need to know of a campaign besides its results, also after it has ended or on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.records.test_run import SetAside


@dataclass(frozen=True, slots=True)
class CampaignFacts:
    """What is known of a campaign's tests and of the code that it leaves out."""

    key: str
    tree_hash: str
    judges_only: bool
    sandbox: str
    test_runner: str
    scope: tuple[str, ...]
    """The tests that the test runner is restricted to, if it is."""
    collected: int
    stable: int
    """Number of tests that pass every time."""
    set_aside: Mapping[str, SetAside]
    """Tests that do not count, as the baseline shows it."""
    set_aside_since: Mapping[str, SetAside]
    """Tests that later runs showed not to count."""
    refused: Mapping[str, Mapping[str, Any]]
    """Why kinds of warm processes were not used, by the kind."""
    skipped: Mapping[str, int]
    """How many functions, classes and lines `# ssr: skip` excludes."""
    baseline_seconds: float
    """Wall time of one run of the tests."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def facts_of(campaign: Campaign) -> CampaignFacts:
    """Return the facts about a campaign so far."""
    baseline, runner, server = campaign.baseline, campaign.runner, campaign.runner.fork_server
    refusals = server.refusals if server is not None else {}
    return CampaignFacts(
        key=campaign.key,
        tree_hash=campaign.snapshot.tree_hash,
        judges_only=campaign.judges_only,
        sandbox=runner.provider.name,
        test_runner=runner.test_runner.name,
        scope=tuple(runner.test_runner.scope),
        collected=len(baseline.collected),
        stable=len(baseline.stable),
        set_aside=dict(baseline.set_aside),
        set_aside_since=dict(campaign.set_aside_since()),
        refused={mode: refusals[mode].to_json() for mode in sorted(refusals)},
        skipped=campaign.skipped_counts(),
        baseline_seconds=baseline.seconds,
    )
