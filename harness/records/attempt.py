"""The record of one attempt of a solver at a task, with its grade and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from harness.records.rewards import solver_reward
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import damaged, decode
from pytest_ssr.records.reasons import Flag, Reason, ReasonCode, Rule, flags_from_json, flags_to_json

SCHEMA_VERSION, OLDEST_VERSION = 4, 2
_RENAMED = {"instance_id": "task", "model": "solver", "rollout": "id", "solver_s": "seconds"}
"""Fields of the results of evaluations, which were another record until schema version 2, by their names there."""
_RESULT_VERSION, _ROLLOUT_VERSION = 2, 3


class Status(StrEnum):
    """What became of an attempt."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY = "empty"
    """Nothing was submitted."""
    ERROR = "error"
    """The patch cannot be parsed, or does not apply."""
    TIMED_OUT = "timed-out"
    INFRA = "infra"
    """No grade: the task, its environment or the sandbox failed, not the attempt."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a solver at a task, or a prediction that somebody else made, with its grade."""

    task: str
    """The id of an artifact or of an instance; empty in the records of earlier releases about artifacts."""
    solver: str
    """The solver's label, or the model that a prediction names."""
    reason: Reason
    """The reason for the grade, or for its absence."""
    attempt: int = 0
    """Counted from 0."""
    id: str = ""
    """The key of everything that it depends on, and the name of its folder in the store; empty for a prediction."""
    repo: str = ""
    artifact_id: str = ""
    """The bug that the instance was made from; empty if it was made from none, and for a task that is a bug."""
    created_at: str = ""
    """When the task was made (ISO 8601); empty if unknown."""
    seed: int = 0
    resolved: bool | None = None
    """The strict verdict; None without a grade, which is always an infrastructure failure."""
    tests: bool | None = None
    """Whether the recorded tests pass; None without a grade."""
    rule: str = Rule.STRICT
    """Which of the two verdicts counts."""
    reward: float | None = None
    """From the verdict by `rule`, combined with the judge's scores if there is a judge."""
    score: float | None = None
    """Mean of the judge's step scores."""
    exit_reason: str = ""
    """Why the solver ended; empty if it is unknown."""
    ending: str = ""
    """How its trajectory ends: completed, truncated, failed or aborted; empty without one."""
    patch_sha256: str = ""
    """Hash of the submitted patch; empty if nothing was submitted."""
    fail_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Test id to passed, failed, not-run or missing; empty for artifacts, like the next."""
    pass_to_pass: Mapping[str, str] = field(default_factory=dict)
    rewards: Mapping[str, float] = field(default_factory=dict)
    """What the verifier of a task in Harbor's form gave, by name; empty for other tasks."""
    flags: tuple[Flag, ...] = ()
    log_resolved: bool | None = None
    """The verdict of SWE-bench's rule on the printed log; None without a log."""
    steps: int = 0
    tokens: int = 0
    """Prompt and completion tokens of all its tries and its judge; the next three fields are about these as well."""
    cost_usd: float = 0.0
    unpriced: int = 0
    """Model calls whose price is unknown."""
    estimated: int = 0
    """Model calls whose token counts are estimated by the client."""
    seconds: float = 0.0
    """Wall time of the solver, in seconds."""
    grading_s: float = 0.0
    """Wall time of the grading, in seconds."""

    @property
    def verdict(self) -> bool | None:
        """The verdict that counts; None without a grade."""
        return Rule(self.rule).verdict(resolved=self.resolved, tests=self.tests)

    @property
    def status(self) -> Status:
        """What became of it by the rule that counts."""
        if self.verdict is None:
            return Status.INFRA
        if self.verdict:
            return Status.RESOLVED
        if not self.patch_sha256:
            return Status.EMPTY
        if self.reason.code in (ReasonCode.PATCH_UNREADABLE, ReasonCode.PATCH_DOES_NOT_APPLY):
            return Status.ERROR
        return Status.TIMED_OUT if self.reason.code is ReasonCode.TIMED_OUT else Status.UNRESOLVED

    @property
    def forged(self) -> bool:
        """Whether the reported test outcomes cannot be true."""
        return self.reason.code is ReasonCode.FORGED

    def by(self, rule: Rule) -> Attempt:
        """Return the attempt with the reward of another rule; the part of a judge's scores is the same."""
        attempt = replace(self, rule=str(rule))
        before, after = solver_reward(self.verdict), solver_reward(attempt.verdict)
        if self.reward is None or before is None or after is None:
            return replace(attempt, reward=after)
        return replace(attempt, reward=after + (self.reward - before))

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data for JSON, with its status."""
        own = {"status": str(self.status), "reason": self.reason.to_json(), **flags_to_json(self.flags)}
        return {"schema_version": SCHEMA_VERSION, **asdict(self), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Attempt | None:
        """Return the record that `to_json` wrote, or None if it is damaged; the work is then repeated."""
        try:
            return cls.read(data)
        except StoreError:
            return None

    @classmethod
    def read(cls, data: Mapping[str, Any] | None) -> Attempt:
        """Return the record that `to_json` wrote, also in version 0.2; raises StoreError for other data."""
        current = _upgraded(data or {})
        if current.get("schema_version") != SCHEMA_VERSION:
            raise damaged(cls, f"it is not of schema version {SCHEMA_VERSION}")
        try:
            own = {"reason": Reason.from_json(current["reason"]), "flags": flags_from_json(current)}
            attempt = decode(cls, {**current, **own})
            return replace(attempt, rule=str(Rule(attempt.rule)))
        except KeyError as error:
            raise damaged(cls, f"it has no {error}") from None
        except (TypeError, ValueError) as error:
            raise damaged(cls, str(error)) from None


def _upgraded(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record of this schema version for one of version 0.2, where results and rollouts were two records."""
    version = data.get("schema_version")
    if version == _RESULT_VERSION and "instance_id" in data:
        return {_RENAMED.get(name, name): value for name, value in data.items()} | {"schema_version": SCHEMA_VERSION}
    if version == _ROLLOUT_VERSION and "seed" in data:
        return {"task": "", **data, "ending": data.get("status"), "schema_version": SCHEMA_VERSION}
    return data


def count_unscored(attempts: Iterable[Attempt]) -> int:
    """Return how many graded attempts have no score: their judge, if there is one, has given no valid vote."""
    return sum(a.verdict is not None and a.score is None for a in attempts)


def status_totals(attempts: Iterable[Attempt]) -> dict[str, Any]:
    """Return the totals of a run: the number of attempts of each status, and the resolved share of the graded ones."""
    every = list(attempts)
    by_status = {status: sum(a.status is status for a in every) for status in Status}
    graded = len(every) - by_status[Status.INFRA]
    return {
        "total": len(every),
        **{str(status).replace("-", "_"): count for status, count in by_status.items()},
        "graded": graded,
        "resolve_rate": by_status[Status.RESOLVED] / graded if graded else None,
    }


def cost_totals(attempts: Iterable[Attempt]) -> dict[str, Any]:
    """Return what a run has cost: the sums over its attempts, and the means over those that have a trajectory."""
    every = list(attempts)
    recorded = [a for a in every if a.steps]
    names = ("steps", "tokens", "cost_usd", "seconds")
    return {
        **{f"total_{name}": round(sum(getattr(a, name) for a in every), 6) for name in names},
        **{
            f"mean_{name}": round(sum(getattr(a, name) for a in recorded) / len(recorded), 6) if recorded else None
            for name in names
        },
    }
