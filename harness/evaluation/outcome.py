"""What became of one prediction, as a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from pytest_ssr.reasons import Flag, Reason, ReasonCode, Rule, flags_from_json, flags_to_json

SCHEMA_VERSION = 2


class Status(StrEnum):
    """The ways in which a prediction ends."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY = "empty"
    """Nothing was handed in."""
    ERROR = "error"
    """What was handed in is no patch, or does not apply."""
    TIMED_OUT = "timed-out"
    INFRA = "infra"
    """No grade: the row, its environment or the sandbox failed, and not the prediction."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One graded prediction."""

    instance_id: str
    repo: str
    model: str
    status: Status
    """By `rule`."""
    reason: Reason
    resolved: bool | None = None
    """The strict verdict; None: no grade."""
    tests: bool | None = None
    """Whether the recorded tests pass; None: no grade."""
    rule: str = Rule.STRICT
    """Which of the two verdicts decides."""
    attempt: int = 0
    patch_sha256: str = ""
    fail_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Test id to passed, failed, not-run or missing."""
    pass_to_pass: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    log_resolved: bool | None = None
    """What SWE-bench's rule makes of the printed log; None where there is none."""
    grading_s: float = 0.0
    """Wall time of the grade."""
    rollout: str = ""
    """The attempt's id in the store; empty where a file of predictions was graded."""
    exit_reason: str = ""
    """How the attempt ended."""
    solver_s: float = 0.0
    """Wall time of the attempt."""
    steps: int = 0
    tokens: int = 0
    """Read and written."""
    cost_usd: float = 0.0
    unpriced: int = 0
    """Calls of a model whose price is not known."""
    estimated: int = 0
    """Calls of a model whose tokens are estimated."""

    @property
    def verdict(self) -> bool | None:
        """The verdict that decides; None without a grade."""
        return None if self.status is Status.INFRA else self.status is Status.RESOLVED

    @property
    def forged(self) -> bool:
        """Whether the outcomes of the tests cannot be true."""
        return self.reason.code is ReasonCode.FORGED

    def by(self, rule: Rule) -> Outcome:
        """Return the outcome with the status of another rule."""
        if self.status in (Status.EMPTY, Status.ERROR):
            return replace(self, rule=str(rule))
        verdict = rule.verdict(resolved=self.resolved, tests=self.tests)
        return replace(self, rule=str(rule), status=status_of(verdict, self.reason.code))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        own = {"status": str(self.status), "reason": self.reason.to_json(), **flags_to_json(self.flags)}
        return {"schema_version": SCHEMA_VERSION, **asdict(self), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Outcome | None:
        """Read plain data back; None when it is of another schema version or not whole."""
        if data is None or data.get("schema_version") != SCHEMA_VERSION:
            return None
        fields = {k: v for k, v in data.items() if k not in ("schema_version", "flag_details")}
        try:
            own = {"status": Status(fields["status"]), "rule": str(Rule(fields["rule"]))}
            return cls(
                **{**fields, **own, "reason": Reason.from_json(fields["reason"]), "flags": flags_from_json(data)}
            )
        except (KeyError, TypeError, ValueError):
            return None


def status_of(verdict: bool | None, code: ReasonCode) -> Status:
    """Return the status of a patch that was graded."""
    if verdict is None:
        return Status.INFRA
    if verdict:
        return Status.RESOLVED
    if code in (ReasonCode.PATCH_UNREADABLE, ReasonCode.PATCH_DOES_NOT_APPLY):
        return Status.ERROR
    return Status.TIMED_OUT if code is ReasonCode.TIMED_OUT else Status.UNRESOLVED


def counts(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return the totals of a run: how many there are of each status, and the share of resolved among the graded."""
    found = list(outcomes)
    by = {status: sum(o.status is status for o in found) for status in Status}
    graded = len(found) - by[Status.INFRA]
    return {
        "total": len(found),
        **{str(status).replace("-", "_"): count for status, count in by.items()},
        "graded": graded,
        "resolve_rate": by[Status.RESOLVED] / graded if graded else None,
    }
