"""One candidate of an injection as a node of pytest's, and each of its steps as an item."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.campaign import Campaign
from pytest_ssr.errors import SsrError
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.stopping import TimeIsUpError, until
from pytest_ssr.trial import Trial
from pytest_ssr.validator import step_names

SCREENING = "screening"
"""The name of the first step."""


class CandidateNode(pytest.Collector):
    """One candidate; its children are the steps."""

    campaign: Campaign
    index: int
    deadline: float
    trial: Trial | None = None

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item for each step, in order."""
        names = (SCREENING, *step_names(self.campaign.extra_checks))
        return [CandidateStep.from_parent(self, name=name) for name in names]

    def is_there(self) -> bool:
        """Tell whether there are so many candidates; those there are have been drawn then."""
        return self.campaign.candidate(self.index) is not None

    def opened(self) -> Trial:
        """Return the trial, opened when the first of its steps runs."""
        if self.trial is None:
            candidate = self.campaign.candidate(self.index)
            assert candidate is not None
            self.trial = Trial(self.campaign, self.index, candidate)
        return self.trial


class CandidateStep(pytest.Item):
    """One step of one candidate."""

    def runtest(self) -> None:
        """Make the step; when the candidate ends with it, say how."""
        node = self.parent
        assert isinstance(node, CandidateNode)
        try:
            with until(node.deadline):
                attempt = node.campaign.known(node.index) or self._made(node.opened())
        except TimeIsUpError:
            pytest.skip("given up: the time budget has ended")
        except SsrError as error:
            # A full disk, a sandbox that broke: the next candidate would meet the same.
            self.session.shouldfail = f"ssr: {error}"
            raise
        if attempt is None:
            return
        self.user_properties.append(("ssr", f"{attempt.index}:{attempt.status}"))
        self.user_properties.append(("candidate", name_of(attempt)))
        verdict = node.campaign.verdicts.get(attempt.artifact_id) if attempt.artifact_id else None
        if verdict is not None:
            self.config.hook.pytest_ssr_verdict(config=self.config, verdict=verdict)
        if attempt.status is not AttemptStatus.VALID:
            pytest.skip(f"{attempt.status}: {attempt.reason}")

    def _made(self, trial: Trial) -> Attempt | None:
        if trial.validation is None and trial.attempt is None:
            trial.screen()
        if trial.attempt is not None:
            return trial.attempt
        if self.name == SCREENING:
            return None
        result = trial.result(self.name)
        if result is None or not result.passed or self.name == step_names()[-1]:
            return trial.finish()
        return None

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Show our own errors as one line."""
        return f"ssr: {excinfo.value}" if isinstance(excinfo.value, SsrError) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the project's directory and the item's id, for reports."""
        return self.path, None, self.name


def name_of(tried: Candidate | Attempt) -> str:
    """Return the operator and the place of a candidate, as it stands in node ids."""
    return f"{tried.operator}@{tried.path}:{tried.line}:{tried.scope}"
