"""Try the candidates of a campaign on any machine: a unit is one candidate, by its index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.executors.node import Node
from harness.executors.protocol import Cluster, VersionsDifferError
from harness.executors.runner_recipe import RunnerRecipe
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.checks import NamedCheck
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.injectors.protocol import Injector
from pytest_ssr.injectors.revision_filter import ProjectDiff
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.test_run import RunStatus
from pytest_ssr.storage.baseline_store import baseline_files

_LONGEST_PACE_S = 10.0
"""The most seconds of the tests by which the pace of a machine is known, if there are shorter ones."""


@dataclass(frozen=True, slots=True)
class CampaignWork:
    """The candidates of a campaign; see Work."""

    campaign: Campaign

    def run(self, index: int) -> CandidateResult | None:
        """Return the result of a candidate; None past the last one."""
        return self.campaign.attempt(index)

    def stored(self, index: int) -> CandidateResult | None:
        """Return the result of a candidate if the store has it."""
        return self.campaign.stored(index)

    def place(self, index: int) -> str:
        """Return an empty string: all units need the same."""
        return ""

    def ahead(self, index: int) -> None:
        """Return None: the project is sent with the first unit."""

    def send(self, index: int, cluster: Cluster) -> int:
        """Return the number: the recipe has the rest."""
        return index

    def recipe(self, cluster: Cluster) -> CampaignRecipe:
        """Return how other machines open the campaign, with the baseline of this one; waits for its second run."""
        campaign = self.campaign
        campaign.verifying.result()
        return CampaignRecipe(
            replace(RunnerRecipe.of(campaign.runner, cluster), pytest_options=()),
            tuple(campaign.injectors),
            campaign.seed,
            campaign.sources,
            campaign.tests,
            campaign.diff,
            baseline_files(campaign.runner, campaign.store, campaign.tests),
            campaign.key,
            campaign.extra_checks,
            campaign.judges_only,
        )

    def fault(self, result: CandidateResult | None) -> None:
        """Return None: a sandbox that fails raises an error."""

    def close(self) -> None:
        """Leave the campaign to those who opened it."""


@dataclass(frozen=True)
class CampaignRecipe:
    """Opens a campaign on another machine."""

    runner: RunnerRecipe
    injectors: Sequence[Injector]
    seed: int
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    diff: ProjectDiff | None
    baseline: Mapping[str, bytes]
    key: str
    extra_checks: Sequence[NamedCheck]
    judges_only: bool = False

    def __call__(self, node: Node) -> OpenCampaign:
        """Return the campaign; raises VersionsDifferError if its candidates would be others than those of the run."""
        node.add_cached(self.baseline)
        campaign = Campaign(
            self.runner.open(node),
            node.store,
            self.injectors,
            seed=self.seed,
            sources=self.sources,
            tests=self.tests,
            diff=self.diff,
            extra_checks=self.extra_checks,
            helpers=max(1, (os.cpu_count() or 1) // node.slots),
            judges_only=self.judges_only,
        )
        if campaign.key != self.key:
            campaign.close()
            raise VersionsDifferError(
                "the candidates would be others on this machine: its injectors see something else than where the run "
                "was started, for example no git history at the project's path"
            )
        try:
            require_pace(campaign.runner, campaign.baseline)
        except SandboxError:
            campaign.close()
            raise
        return OpenCampaign(campaign)


def require_pace(runner: Runner, baseline: Baseline) -> None:
    """Raise SandboxUnavailableError if a part of the tests does not end here in the time that candidates have for it.

    The limits of candidates are multiples of the baseline's seconds, which are those of another machine.
    """
    seconds = {file: baseline.seconds_of_files([file]) for file in baseline.files}
    if not seconds or not isinstance(runner.test_runner, PytestRunner):
        # Others cannot run a part.
        return
    short = [file for file in seconds if seconds[file] <= _LONGEST_PACE_S]
    file = max(short, key=seconds.__getitem__) if short else min(seconds, key=seconds.__getitem__)
    run = runner.fresh(runner.original, [file], like_s=seconds[file])
    if run.status is RunStatus.TIMED_OUT:
        raise SandboxUnavailableError(
            f"this machine is too slow, or too busy: {file} takes {seconds[file]:.1f} s where the run was started, and "
            f"did not end here within {runner.limits_after(seconds[file]).wall_s:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class OpenCampaign:
    """A campaign that a worker holds open."""

    campaign: Campaign

    def run(self, index: int) -> CandidateResult | None:
        """Try a candidate."""
        return self.campaign.attempt(index)

    def fault(self, result: CandidateResult | None) -> None:
        """Return None: a sandbox that fails raises an error."""

    def close(self) -> None:
        """Stop the fork server."""
        self.campaign.end()
        self.campaign.close()
