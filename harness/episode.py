"""One artifact, its verdict, the attempts at it, the grades and the rewards, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.rewards import ALPHA, injector_reward, solve_rate, solver_reward
from harness.shapes import whole
from pytest_ssr.reasons import Flag, Reason, ReasonCode, Rule, flags_from_json, flags_to_json

SCHEMA_VERSION = 3


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt of a solver at an artifact, and its grade."""

    id: str
    """The key of everything it depends on; also its folder in the store."""
    attempt: int
    solver: str
    seed: int
    resolved: bool | None
    """The strict verdict. None: no grade, because of a fault of ours."""
    reward: float | None
    """Of the verdict by `rule`, and of the judge's scores if there is a judge."""
    reason: Reason
    """The reason of the grade, or why there is no grade."""
    exit_reason: str
    status: str
    tests: bool | None = None
    """Whether the recorded tests pass; None: no grade."""
    rule: str = Rule.STRICT
    """Which of the two verdicts decides."""
    patch_sha256: str = ""
    """Of what was handed in; empty: nothing."""
    flags: tuple[Flag, ...] = ()
    steps: int = 0
    tokens: int = 0
    """Of all its tries and its judge, like the three that follow."""
    cost_usd: float = 0.0
    unpriced: int = 0
    """Calls whose price is not known."""
    estimated: int = 0
    """Calls whose tokens are our estimate."""
    score: float | None = None
    """Mean of what a judge gave its steps."""
    seconds: float = 0.0
    """Wall time of the attempt."""
    grading_s: float = 0.0
    """Wall time of the grade."""

    @property
    def verdict(self) -> bool | None:
        """The verdict that decides; None: no grade."""
        return Rule(self.rule).verdict(resolved=self.resolved, tests=self.tests)

    @property
    def forged(self) -> bool:
        """Whether the outcomes of the tests cannot be true."""
        return self.reason.code is ReasonCode.FORGED

    def by(self, rule: Rule) -> Rollout:
        """Return the rollout with the reward of another rule, without a judge's scores."""
        found = replace(self, rule=str(rule))
        return replace(found, reward=solver_reward(found.verdict))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        own = {"reason": self.reason.to_json(), **flags_to_json(self.flags)}
        return {"schema_version": SCHEMA_VERSION, **asdict(self), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rollout | None:
        """Read plain data back; None when it is of another schema version or not whole: the work is done anew."""
        if data.get("schema_version") != SCHEMA_VERSION:
            return None
        told = {k: v for k, v in data.items() if k not in ("schema_version", "flag_details")}
        try:
            own = {"reason": Reason.from_json(told["reason"]), "flags": flags_from_json(data)}
            return whole(cls(**{**told, **own, "rule": str(Rule(told["rule"]))}))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Episode:
    """What became of one bug."""

    project: str
    artifact_id: str
    """Empty for what was not valid."""
    round: int
    order: int
    parent: str
    strategy: str
    operator: str
    path: str
    scope: str
    lines: int
    """Lines that the bug adds and removes."""
    fail_to_pass: int
    valid: bool
    reason: str
    """Why it is not valid."""
    refused: str = ""
    """Why no solver was let at it though it is valid."""
    repeated: bool = False
    """A model has made a change again that was made before: what it used counts, and a bug counts no second time."""
    change: str = ""
    """A hash of the bug's diff; empty where there is none."""
    tokens: int = 0
    """Of the model that injected it, like the three that follow."""
    cost_usd: float = 0.0
    unpriced: int = 0
    estimated: int = 0
    seconds: float = 0.0
    """Wall time of the injection and the proof."""
    rollouts: tuple[Rollout, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether it is a try at a bug of its own."""
        return not (self.valid and self.repeated)

    @property
    def rate(self) -> float | None:
        """Resolved over graded attempts."""
        return solve_rate([r.verdict for r in self.rollouts])

    def reward(self, *, alpha: float = ALPHA, kind: str = "solve-rate") -> float | None:
        """Return the injector's reward; none for a bug of second order, which nobody injected, and for one again."""
        if self.order > 1 or not self.counts:
            return None
        return injector_reward(self.valid, self.rate, alpha=alpha, kind=kind)

    def to_json(self, *, alpha: float = ALPHA, kind: str = "solve-rate") -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            "rollouts": [r.to_json() for r in self.rollouts],
            "solve_rate": self.rate,
            "injector_reward": self.reward(alpha=alpha, kind=kind),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Episode | None:
        """Read plain data back; None when it is of another schema version or not whole."""
        try:
            if data.get("schema_version") != SCHEMA_VERSION:
                return None
            told = {k: v for k, v in data.items() if k not in ("schema_version", "solve_rate", "injector_reward")}
            rollouts = [Rollout.from_json({"schema_version": SCHEMA_VERSION, **r}) for r in told["rollouts"]]
            found = whole(cls(**{**told, "rollouts": tuple(r for r in rollouts if r is not None)}))
        except (AttributeError, KeyError, TypeError):
            return None
        return found if len(found.rollouts) == len(rollouts) else None


def missing(episodes: Sequence[Episode]) -> int:
    """Return how many attempts of some episodes have no grade."""
    return sum(r.verdict is None for e in episodes for r in e.rollouts)


def graded(episodes: Sequence[Episode]) -> tuple[int, int]:
    """Return resolved and graded attempts of some episodes."""
    outcomes = [r.verdict for e in episodes for r in e.rollouts if r.verdict is not None]
    return sum(outcomes), len(outcomes)
