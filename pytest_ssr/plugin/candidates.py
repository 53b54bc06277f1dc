"""Collect each candidate of an injection as a pytest node, with its steps as items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.checks.validator import step_names
from pytest_ssr.errors import SsrError
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.plugin.session_without_tests import extensions_of_config
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus

SCREENING = "screening"
"""The name of the first step."""


class CandidateNode(pytest.Collector):
    """One candidate; its children are the steps of its trial."""

    campaign: Campaign
    index: int
    deadline: float
    trial: Trial | None = None

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item for each step, in order."""
        further = () if self.campaign.judges_only else step_names(self.campaign.extra_checks)
        names = (SCREENING, *further)
        return [CandidateStep.from_parent(self, name=name) for name in names]

    def exists(self) -> bool:
        """Return whether the campaign has a candidate at this index; draws all candidates up to it."""
        return self.campaign.candidate(self.index) is not None

    def open_trial(self) -> Trial:
        """Return the trial; it is created when its first step runs."""
        if self.trial is None:
            candidate = self.campaign.candidate(self.index)
            assert candidate is not None
            self.trial = Trial(self.campaign, self.index, candidate)
        return self.trial


class CandidateStep(pytest.Item):
    """One step of one candidate."""

    def runtest(self) -> None:
        """Run the step; skip with the reason if the candidate is rejected by it."""
        node = self.parent
        assert isinstance(node, CandidateNode)
        try:
            with until(node.deadline):
                result = node.campaign.stored(node.index) or self._run_step(node.open_trial())
        except TimeBudgetError:
            pytest.skip("given up: the time budget has ended")
        except SsrError as error:
            # Such as a full disk or a broken sandbox: the next candidate would fail in the same way.
            self.session.shouldfail = f"ssr: {error}"
            raise
        if result is None:
            return
        self.user_properties.append(("ssr", f"{result.index}:{result.status}"))
        self.user_properties.append(("candidate", node_name(result)))
        verdict = node.campaign.verdicts.get(result.artifact_id) if result.artifact_id else None
        if verdict is not None:
            extensions_of_config(self.config).observe(verdict)
        if result.status is not CandidateStatus.VALID:
            pytest.skip(f"{result.status}: {result.reason}")

    def _run_step(self, trial: Trial) -> CandidateResult | None:
        if trial.validation is None and trial.candidate_result is None:
            trial.screen()
        if trial.candidate_result is not None:
            return trial.candidate_result
        if self.name == SCREENING:
            return None
        result = trial.result(self.name)
        if result is None or not result.passed or self.name == step_names()[-1]:
            return trial.finish()
        return None

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Show errors of this package as one line."""
        return f"ssr: {excinfo.value}" if isinstance(excinfo.value, SsrError) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the project's directory and the item's id, for reports."""
        return self.path, None, self.name


def node_name(candidate: Candidate | CandidateResult) -> str:
    """Return the operator and the location of a candidate, as node ids show them."""
    return f"{candidate.operator}@{candidate.path}:{candidate.line}:{candidate.scope}"
