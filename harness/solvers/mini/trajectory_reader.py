"""Read mini-swe-agent's files `ID.traj.json` as records of rollouts, with their reported cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.records.trajectory import ExitReason, Journal, Trajectory
from harness.solvers.mini.trajectory_writer import Recorder, ending
from pytest_ssr.errors import ModelError, SettingsError

_FORMAT = "mini-swe-agent-1"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A rollout that was recorded by mini-swe-agent."""

    rollout: Trajectory
    cost_usd: float
    """Cost of all calls in USD, as mini-swe-agent counted it."""
    data: Mapping[str, Any]
    """The content of the file."""


def read_mini_trajectory(path: Path, model: str) -> Recorded:
    """Read a trajectory; raises SettingsError, naming the file, if it is not a valid one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"trajectory {path} cannot be read: {error}") from None
    kind = data.get("trajectory_format") if isinstance(data, dict) else None
    if not isinstance(kind, str) or not kind.startswith(_FORMAT):
        raise SettingsError(
            f"{path} is not a trajectory of mini-swe-agent: trajectory_format is {kind!r}, not {_FORMAT}.x"
        )
    journal = Journal(Trajectory(f"mini-swe-agent/{path.parent.name}", path.parent.name, "solver", 0, model))
    try:
        info = data.get("info") or {}
        stats = info.get("model_stats") or {}
        journal.describe(tools=[], sampling={}, mini_swe_agent=str(info.get("mini_version", "")))
        recorder = Recorder(journal)
        for message in data["messages"]:
            recorder.take(message)
        reason, detail = ending(info, recorder.exit or {})
        journal.end(reason, detail, _submission(info, reason))
        cost = stats.get("instance_cost")
        if not isinstance(cost, int | float) or not 0 <= cost < math.inf:
            cost = journal.trajectory.cost_usd
        return Recorded(journal.trajectory, float(cost), data)
    except (ModelError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not a complete trajectory of mini-swe-agent: {error}") from None


def _submission(info: Mapping[str, Any], reason: ExitReason) -> Mapping[str, Any]:
    return {"patch": str(info.get("submission") or "")} if reason is ExitReason.SUBMITTED else {}
