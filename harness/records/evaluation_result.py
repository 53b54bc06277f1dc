"""The record of one evaluated prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import damaged, decode
from pytest_ssr.records.reasons import Flag, Reason, ReasonCode, Rule, flags_from_json, flags_to_json

SCHEMA_VERSION = 2


class Status(StrEnum):
    """The result of evaluating a prediction."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY = "empty"
    """The prediction has no patch."""
    ERROR = "error"
    """The patch cannot be parsed, or does not apply."""
    TIMED_OUT = "timed-out"
    INFRA = "infra"
    """No grade: the row, its environment or the sandbox failed, not the prediction."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One graded prediction."""

    instance_id: str
    repo: str
    model: str
    status: Status
    """The status according to `rule`."""
    reason: Reason
    resolved: bool | None = None
    """The strict verdict; None without a grade."""
    tests: bool | None = None
    """Whether the recorded tests pass; None without a grade."""
    rule: str = Rule.STRICT
    """Which of the two verdicts counts."""
    attempt: int = 0
    patch_sha256: str = ""
    fail_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Test id to passed, failed, not-run or missing."""
    pass_to_pass: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    log_resolved: bool | None = None
    """The verdict of SWE-bench's rule on the printed log; None without a log."""
    grading_s: float = 0.0
    """Wall time of the grading, in seconds."""
    rollout: str = ""
    """The attempt's id in the store; empty if a file of predictions was graded."""
    exit_reason: str = ""
    """How the attempt ended."""
    solver_s: float = 0.0
    """Wall time of the attempt, in seconds."""
    steps: int = 0
    tokens: int = 0
    """Prompt and completion tokens together."""
    cost_usd: float = 0.0
    unpriced: int = 0
    """Model calls whose price is unknown."""
    estimated: int = 0
    """Model calls whose token counts are estimated."""

    @property
    def verdict(self) -> bool | None:
        """The verdict that counts; None without a grade."""
        return None if self.status is Status.INFRA else self.status is Status.RESOLVED

    @property
    def forged(self) -> bool:
        """Whether the reported test outcomes cannot be true."""
        return self.reason.code is ReasonCode.FORGED

    def by(self, rule: Rule) -> EvaluationResult:
        """Return the result with the status of another rule."""
        if self.status in (Status.EMPTY, Status.ERROR):
            return replace(self, rule=str(rule))
        verdict = rule.verdict(resolved=self.resolved, tests=self.tests)
        return replace(self, rule=str(rule), status=status_of(verdict, self.reason.code))

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data for JSON."""
        own = {"status": str(self.status), "reason": self.reason.to_json(), **flags_to_json(self.flags)}
        return {"schema_version": SCHEMA_VERSION, **asdict(self), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> EvaluationResult | None:
        """Return the record that `to_json` wrote; None if it has another schema version or is incomplete."""
        try:
            return cls.read(data)
        except StoreError:
            return None

    @classmethod
    def read(cls, data: Mapping[str, Any] | None) -> EvaluationResult:
        """Return the record that `to_json` wrote; raises StoreError for other data."""
        if data is None or data.get("schema_version") != SCHEMA_VERSION:
            raise damaged(cls, f"it is not of schema version {SCHEMA_VERSION}")
        try:
            own = {"reason": Reason.from_json(data["reason"]), "flags": flags_from_json(data)}
            result = decode(cls, {**data, **own})
            return replace(result, rule=str(Rule(result.rule)))
        except KeyError as error:
            raise damaged(cls, f"it has no {error}") from None
        except (TypeError, ValueError) as error:
            raise damaged(cls, str(error)) from None


def status_of(verdict: bool | None, code: ReasonCode) -> Status:
    """Return the status of a graded patch."""
    if verdict is None:
        return Status.INFRA
    if verdict:
        return Status.RESOLVED
    if code in (ReasonCode.PATCH_UNREADABLE, ReasonCode.PATCH_DOES_NOT_APPLY):
        return Status.ERROR
    return Status.TIMED_OUT if code is ReasonCode.TIMED_OUT else Status.UNRESOLVED


def status_totals(outcomes: Iterable[EvaluationResult]) -> dict[str, Any]:
    """Return the totals of a run: the number of results of each status, and the resolved share of the graded ones."""
    results = list(outcomes)
    by_status = {status: sum(r.status is status for r in results) for status in Status}
    graded = len(results) - by_status[Status.INFRA]
    return {
        "total": len(results),
        **{str(status).replace("-", "_"): count for status, count in by_status.items()},
        "graded": graded,
        "resolve_rate": by_status[Status.RESOLVED] / graded if graded else None,
    }
