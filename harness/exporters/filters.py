"""Select the rollouts and tasks of an export, and give the reason for each that is skipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from harness.exporters.protocol import Task
from harness.exporters.record import ROLES, Record
from harness.exporters.skipped import SkipCode, SkippedError
from harness.records.task_choice import TaskChoice
from pytest_ssr.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Filters:
    """The rollouts and tasks to keep; None and empty values keep everything."""

    role: str = ""
    model: str = ""
    strategies: tuple[str, ...] = ()
    min_reward: float | None = None
    max_reward: float | None = None
    positive: bool = False
    """Keep only rewards above 0."""
    min_solve_rate: float | None = None
    max_solve_rate: float | None = None
    min_calls: int | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    """Of the longest call: prompt and reply."""
    on_policy: bool = False
    no_flags: bool = False
    audit: TaskChoice | None = None
    """Which tasks pass an audit; what is of no task, such as the rollout of an injector without a bug, is kept."""

    def __post_init__(self) -> None:
        """Raise SettingsError, naming the option, for bounds that exclude everything."""
        if self.role not in ("", *ROLES):
            raise SettingsError(f"--role must be {' or '.join(ROLES)}, not {self.role!r}", option="role")
        for name in ("min_reward", "max_reward", "min_solve_rate", "max_solve_rate"):
            value = getattr(self, name)
            if value is not None and math.isnan(value):
                raise SettingsError(f"{_option(name)} must be a number", option=name.replace("_", "-"))
        for name in ("min_solve_rate", "max_solve_rate"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise SettingsError(f"{_option(name)} must lie in [0, 1], not {value:g}", option=name.replace("_", "-"))
        for name in ("min_calls", "max_calls", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise SettingsError(f"{_option(name)} must be at least 0, not {value}", option=name.replace("_", "-"))
        for low, high in (
            ("min_reward", "max_reward"),
            ("min_solve_rate", "max_solve_rate"),
            ("min_calls", "max_calls"),
        ):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise SettingsError(
                    f"{_option(low)} {least:g} is more than {_option(high)} {most:g}", option=low.replace("_", "-")
                )

    def of_rollouts(self) -> list[str]:
        """Return the given options that apply to rollouts only, not to artifacts."""
        names = (
            *("role", "model", "min_reward", "max_reward", "min_calls", "max_calls", "max_tokens"),
            *("on_policy", "no_flags"),
        )
        values = {name: getattr(self, name) for name in names}
        return [_option(n) for n, value in values.items() if value is not None and value is not False and value != ""]

    def require(self, record: Record, *, rewarded: bool) -> None:
        """Raise SkippedError for a rollout that the filters exclude. rewarded: exclude those without a reward."""
        code = self._refusal(record, rewarded=rewarded)
        if code is not None:
            detail = record.data["verdict"].get("reason") if code in (SkipCode.NO_GRADE, SkipCode.NO_RATE) else ""
            raise SkippedError(code, str(detail or ""))

    def _refusal(self, record: Record, *, rewarded: bool) -> SkipCode | None:
        data, reward = record.data, record.reward
        if self.role and data["role"] != self.role:
            return SkipCode.OTHER_ROLE
        if self.model and record.model != self.model:
            return SkipCode.OTHER_MODEL
        if reward is None and (rewarded or self.min_reward is not None or self.max_reward is not None):
            is_fault = data["status"] == "aborted" or data["verdict"].get("infra")
            return SkipCode.NO_GRADE if is_fault else SkipCode.NO_RATE
        if self.positive and reward is not None and reward <= 0:
            return SkipCode.NOT_POSITIVE
        if reward is not None and not _between(reward, self.min_reward, self.max_reward):
            return SkipCode.REWARD_OUT_OF_BOUNDS
        if not _between(len(record.calls), self.min_calls, self.max_calls):
            return SkipCode.CALLS_OUT_OF_BOUNDS
        if self.max_tokens is not None and record.tokens > self.max_tokens:
            return SkipCode.TOO_MANY_TOKENS
        if self.on_policy and not record.on_policy:
            return SkipCode.OFF_POLICY
        if self.no_flags and data["flags"]:
            return SkipCode.FLAGGED
        return self._of_task(str(data["task"].get("strategy", "")), data["task"].get("solve_rate"), record.bug)

    def require_task(self, task: Task) -> None:
        """Raise SkippedError for an artifact that the filters exclude."""
        if code := self._of_task(task.strategy, task.solve_rate, task.id):
            raise SkippedError(code)

    def refusal_of_instance(self, *names: str) -> SkipCode | None:
        """Return the reason why the filters exclude an instance of a dataset, which no strategy has made.

        names: its id, and that of the bug it was made from.
        """
        return self._of_task("", None, *names)

    def _of_task(self, strategy: str, rate: Any, *names: str) -> SkipCode | None:
        if self.strategies and strategy not in self.strategies:
            return SkipCode.OTHER_STRATEGY
        bounded = self.min_solve_rate is not None or self.max_solve_rate is not None
        if bounded and type(rate) not in (int, float):
            return SkipCode.RATE_UNKNOWN
        if bounded and not _between(rate, self.min_solve_rate, self.max_solve_rate):
            return SkipCode.RATE_OUT_OF_BOUNDS
        if self.audit is not None and any(names) and (reason := self.audit.reason(*names)) is not None:
            return SkipCode(str(reason))
        return None


def _between(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
