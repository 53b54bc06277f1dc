"""Define the record of a candidate and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pytest_ssr.records.check_reasons import CheckCode, CheckReason, explained, reason_from_json, reason_to_json
from pytest_ssr.records.decoding import decode_or_none
from pytest_ssr.records.fallback import Fallback

SCHEMA_VERSION = 2


class CandidateStatus(StrEnum):
    """The result of a candidate."""

    VALID = "valid"
    NOTICED = "noticed"
    """A test fails with the change, and failed again; no artifact was made of it."""
    SURVIVED = "survived"
    REJECTED = "rejected"
    TIMED_OUT = "timed-out"
    NOT_EXERCISED = "not-exercised"
    """No test failed, and nothing proves that the tests ran the changed code."""
    UNDECIDED = "undecided"
    """No test that counts failed, but one that was set aside, and might notice the change, reaches it."""

    @property
    def is_judged(self) -> bool:
        """Whether the tests had the chance to notice the change."""
        return self not in (CandidateStatus.NOT_EXERCISED, CandidateStatus.UNDECIDED)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate and its result."""

    index: int
    """Its index in the campaign's order."""
    status: CandidateStatus
    """valid, noticed, survived, rejected, timed-out, not-exercised or undecided."""
    strategy: str
    """As in Candidate, like the five that follow."""
    operator: str
    path: str
    line: int
    scope: str
    detail: str
    diff: str
    """The change as a diff, for people to read."""
    check: str = ""
    """The step that rejected it: `screening`, `weakening` or a check's name."""
    reason: CheckReason | None = None
    """Why the candidate is not valid; None if it is."""
    artifact_id: str = ""
    """The artifact's id if the candidate is valid, else empty."""
    fail_to_pass: int = 0
    """Number of tests that it breaks."""
    seconds: float = 0.0
    """Wall time of its trial, in seconds."""
    runs: int = 0
    """Number of test runs in its trial."""
    tier: str = ""
    """How it was screened: none (no test reaches it), swap or import (forks of warm processes), or fresh."""
    forks: int = 0
    """Number of those runs that were forks of warm processes."""
    fallback: Fallback | None = None
    """Why it was screened in a fresh process; None if it was not."""
    disagreement: str = ""
    """Tests for which the screening in a warm process was wrong; the candidate was screened again in a fresh one."""
    sign: str | None = None
    """Why it is equivalent, a value of EquivalenceProof or EquivalenceSign; empty without a proof or a sign.

    None in records of earlier releases and of models, for which it was not looked for.
    """
    identity: str = ""
    """What names the change as long as its function stays the same, see `source.change_identity`; only of survivors."""

    @property
    def explanation(self) -> str:
        """The step that rejected it, and the reason, as one line; empty if it is valid."""
        return explained(self.check, self.reason)

    @property
    def is_reached(self) -> bool:
        """Whether a test runs what a surviving change changes."""
        return self.reason is None or self.reason.code is not CheckCode.NOT_REACHED

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        fallback = self.fallback.to_json() if self.fallback is not None else None
        own = {**reason_to_json(self.reason), "fallback": fallback}
        return {"schema_version": SCHEMA_VERSION, **asdict(self), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CandidateResult | None:
        """Read plain data back; None if it has another schema version or is incomplete: the trial then runs again."""
        try:
            own = {"reason": reason_from_json(data), "fallback": Fallback.from_json(data.get("fallback"))}
        except (KeyError, TypeError):
            return None
        return decode_or_none(cls, {**data, **own}, version=SCHEMA_VERSION)


def is_tried(result: CandidateResult) -> bool:
    """Return whether a trial shows how the tests react to the change."""
    return result.status.is_judged and result.status is not CandidateStatus.TIMED_OUT


@dataclass(frozen=True, slots=True)
class Goal:
    """When a campaign has enough results: after a number of valid ones, or of tried changes, or those of a shard."""

    count: int
    """Valid results wanted."""
    changes: int = 0
    """If not 0: changes to try, however many of them are valid."""
    indices: range | None = None
    """If given: the candidates to try, those of a shard, whatever becomes of them."""

    @property
    def wanted(self) -> int:
        """The number of results that count towards the goal."""
        return len(self.indices) if self.indices is not None else self.changes or self.count

    def counts(self, result: CandidateResult) -> bool:
        """Return whether a result counts towards the goal."""
        if self.indices is not None:
            return True
        return is_tried(result) if self.changes else result.status is CandidateStatus.VALID

    def is_reached(self, results: Sequence[CandidateResult]) -> bool:
        """Return whether results are enough."""
        return sum(map(self.counts, results)) >= self.wanted

    def prefix(self, results: Sequence[CandidateResult]) -> list[CandidateResult]:
        """Return the results, in order, up to the one that reaches the goal; other workers may have produced more."""
        prefix: list[CandidateResult] = []
        counting = 0
        for result in results:
            if counting == self.wanted:
                break
            prefix.append(result)
            counting += self.counts(result)
        return prefix
