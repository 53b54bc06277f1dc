"""One candidate and what became of it, as a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 2


class AttemptStatus(StrEnum):
    """What became of a candidate."""

    VALID = "valid"
    SURVIVED = "survived"
    REJECTED = "rejected"
    TIMED_OUT = "timed-out"
    NOT_EXERCISED = "not-exercised"
    """No test failed, and nothing proves that the tests ran the changed code."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate and what became of it."""

    index: int
    """Its place in the campaign's order."""
    status: AttemptStatus
    """valid, survived, rejected, timed-out or not-exercised."""
    strategy: str
    """As in Candidate, like the five that follow."""
    operator: str
    path: str
    line: int
    scope: str
    detail: str
    diff: str
    """The change, for people to read."""
    check: str = ""
    """Which step rejected it: `screening`, `weakening` or a check's name."""
    reason: str = ""
    """Why, in one sentence."""
    artifact_id: str = ""
    """The artifact, when it is valid."""
    fail_to_pass: int = 0
    """How many tests it breaks."""
    seconds: float = 0.0
    """Wall time spent on it."""
    runs: int = 0
    """Test runs made for it."""
    tier: str = ""
    """How it was screened: none (no test reaches it), swap, import (forks of warm processes) or fresh."""
    forks: int = 0
    """How many of the runs were made in forks of warm processes."""
    fallback: str = ""
    """Why it was screened in a fresh process."""
    disagreement: str = ""
    """Tests about which the screening in a warm process was wrong; it was screened again in a fresh one."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Attempt | None:
        """Read plain data back; None when it is of another schema version or not whole: the work is done anew."""
        if data.get("schema_version") != SCHEMA_VERSION:
            return None
        fields = {k: v for k, v in data.items() if k != "schema_version"}
        try:
            return cls(**{**fields, "status": AttemptStatus(fields["status"])})
        except (KeyError, TypeError, ValueError):
            return None


def counted(attempts: Sequence[Attempt], count: int) -> list[Attempt]:
    """Cut attempts, in order, after the `count`-th valid one: what came later was made in vain by other workers."""
    kept: list[Attempt] = []
    valid = 0
    for attempt in attempts:
        if valid == count:
            break
        kept.append(attempt)
        valid += attempt.status is AttemptStatus.VALID
    return kept
