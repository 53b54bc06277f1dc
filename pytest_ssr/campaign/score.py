"""Compute the score of a test suite: the share of changes that the tests notice, with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus

_Z = NormalDist().inv_cdf(0.975)
"""The quantile of a 95 % interval with two sides."""


@dataclass(frozen=True, slots=True)
class Score:
    """How many of the changes with an outcome the tests noticed."""

    noticed: int
    """Changes after which at least one test failed, including those that break too much to be an artifact."""
    tried: int
    """The noticed ones and the survivors; changes that were not exercised, or timed out, are left out."""

    @property
    def rate(self) -> float | None:
        """The share of noticed changes; None if none was tried."""
        return self.noticed / self.tried if self.tried else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share by Wilson (1927); (0, 1) without any change."""
        if not self.tried:
            return 0.0, 1.0
        n, share = self.tried, self.noticed / self.tried
        centre = share + _Z**2 / (2 * n)
        half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
        scale = 1 + _Z**2 / n
        return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def score_of(results: Iterable[CandidateResult]) -> Score:
    """Return the score of results."""
    noticed = survived = 0
    for result in results:
        noticed += result.status in (CandidateStatus.VALID, CandidateStatus.REJECTED)
        survived += result.status is CandidateStatus.SURVIVED
    return Score(noticed, noticed + survived)
