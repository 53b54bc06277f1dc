"""Read the trials of Harbor's jobs (`JOBS/JOB/TRIAL/result.json`) from their files.

Whether a reward is a measurement follows Harbor's own table of failures, which writes its judgement (`policy`) beside
each exception. Earlier releases of Harbor did not: there, a reward counts only after the failures of agents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.records.trajectory import ExitReason
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import NonEmpty, TokenCount, TokenId, decode, json_object

RESULT = "result.json"
_REWARD = "reward"
_AGENT_FAILURES = {
    "NonZeroAgentExitCodeError": "",
    "AgentSafetyRefusalError": "",
    "ContentPolicyViolationError": "",
    "AgentTimeoutError": ExitReason.TIME_LIMIT,
    "ContextWindowExceededError": ExitReason.CONTEXT,
    "ContextLengthExceededError": ExitReason.CONTEXT,
    "OutputTokenExceededError": ExitReason.TOKEN_LIMIT,
    "OutputLengthExceededError": ExitReason.TOKEN_LIMIT,
}
"""Exceptions of Harbor that are the agent's, and the limits that they stand for."""


@dataclass(frozen=True, slots=True)
class RolloutDetail:
    """The tokens of an agent's conversation, turn by turn."""

    prompt_token_ids: tuple[tuple[TokenId, ...], ...] = ()
    completion_token_ids: tuple[tuple[TokenId, ...], ...] = ()
    logprobs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class _Agent:
    name: NonEmpty
    version: str = ""
    model_info: _Model | None = None


@dataclass(frozen=True, slots=True)
class _Usage:
    n_input_tokens: TokenCount | None = None
    n_output_tokens: TokenCount | None = None
    cost_usd: float | None = None
    rollout_details: tuple[RolloutDetail, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Verified:
    rewards: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class _Policy:
    has_valid_reward: bool


@dataclass(frozen=True, slots=True)
class _Failure:
    exception_type: str
    policy: _Policy | None = None

    @property
    def has_valid_reward(self) -> bool:
        return self.exception_type in _AGENT_FAILURES if self.policy is None else self.policy.has_valid_reward


@dataclass(frozen=True, slots=True)
class _Times:
    started_at: str | None = None
    finished_at: str | None = None

    @property
    def seconds(self) -> float | None:
        try:
            start, end = (datetime.fromisoformat(t or "") for t in (self.started_at, self.finished_at))
            return max(0.0, (end - start).total_seconds())
        except (TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class _Step:
    agent_result: _Usage | None = None
    exception_info: _Failure | None = None
    agent_execution: _Times | None = None


@dataclass(frozen=True, slots=True)
class _Result:
    task_name: NonEmpty
    trial_name: NonEmpty
    agent_info: _Agent
    id: str = ""
    agent_result: _Usage | None = None
    verifier_result: _Verified | None = None
    exception_info: _Failure | None = None
    started_at: str | None = None
    finished_at: str | None = None
    agent_execution: _Times | None = None
    step_results: tuple[_Step, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A finished trial: one attempt of an agent at a task."""

    id: str
    name: str
    task: str
    agent: str
    version: str
    model: str
    """`provider/name`; empty if the agent has no model."""
    started_at: str
    reward: float | None
    """None without a reward, or if it measures a failure of the machine or of a server."""
    rewards: Mapping[str, float]
    """All that the verifier wrote, by name."""
    exception: str
    """The type of the first exception; empty if none was recorded."""
    tokens: int
    """Below 0 if unknown, as are the next two."""
    cost_usd: float
    seconds: float
    """Wall time of the agent."""
    details: tuple[RolloutDetail, ...]

    @property
    def resolved(self) -> bool | None:
        """Whether the whole reward was earned; None without a measurement."""
        return None if self.reward is None else self.reward >= 1

    @property
    def limit(self) -> str:
        """The limit that ended the agent; empty if none did."""
        return str(_AGENT_FAILURES.get(self.exception, ""))


def trial_folders(path: Path) -> list[Path]:
    """Return the trials at a path: a trial, a job or a folder of jobs; empty for any other path."""
    level = [path]
    for _ in range(3):
        found = [folder for folder in level if _is_trial(folder)]
        if found:
            return found
        level = sorted(child for folder in level for child in _children(folder))
    return []


def _children(folder: Path) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.is_dir()]
    except OSError:
        return []


def _is_trial(folder: Path) -> bool:
    files = [path for path in (folder / "config.json", folder / RESULT) if path.is_file()]
    if files and (folder / "trial.log").is_file():
        return True
    try:
        return any("trial_name" in (json_object(path.read_bytes()) or {}) for path in files)
    except OSError:
        return False


def read_trial(folder: Path) -> Trial | None:
    """Return the trial in a folder; None if it has not finished. Raises StoreError, naming the file, if damaged."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        data = json_object(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    if data is None:
        raise StoreError(f"{path} is damaged: it is not a JSON object")
    try:
        result = decode(_Result, data)
    except StoreError as error:
        raise StoreError(f"{path} is damaged: {error}") from None
    if not all(map(math.isfinite, _rewards(result).values())):
        raise StoreError(f"{path} is damaged: a reward is not a finite number")
    return None if result.finished_at is None else _trial(result)


def _trial(result: _Result) -> Trial:
    steps = result.step_results or ()
    failures = [f for f in (result.exception_info, *(s.exception_info for s in steps)) if f is not None]
    # A trial of several steps has no result of its own.
    usages = [result.agent_result] if result.agent_result else [s.agent_result for s in steps if s.agent_result]
    times = [result.agent_execution] if result.agent_execution else [s.agent_execution for s in steps]
    rewards = _rewards(result)
    model = result.agent_info.model_info
    return Trial(
        id=result.id or result.trial_name,
        name=result.trial_name,
        task=result.task_name,
        agent=result.agent_info.name,
        version=result.agent_info.version,
        model="" if model is None else "/".join(filter(None, (model.provider, model.name))),
        started_at=result.started_at or "",
        reward=rewards.get(_REWARD) if all(f.has_valid_reward for f in failures) else None,
        rewards=rewards,
        exception=failures[0].exception_type if failures else "",
        tokens=int(_total(n for u in usages for n in (u.n_input_tokens, u.n_output_tokens))),
        cost_usd=_total(u.cost_usd for u in usages),
        seconds=_total(None if t is None else t.seconds for t in times),
        details=tuple(d for u in usages for d in u.rollout_details or ()),
    )


def _rewards(result: _Result) -> Mapping[str, float]:
    return (result.verifier_result.rewards if result.verifier_result else None) or {}


def _total(values: Iterable[float | None]) -> float:
    """Return the sum of values; -1 if one is unknown, or if there are none."""
    known = list(values)
    return -1.0 if not known or None in known else sum(v for v in known if v is not None)
