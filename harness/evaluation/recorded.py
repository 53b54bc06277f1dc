"""Add recorded trajectories to the results of predictions, and write them as `traj.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.records.evaluation_result import EvaluationResult
from harness.records.trajectory import Trajectory
from harness.records.usage import RunUsage
from harness.solvers.mini.trajectory_reader import read_mini_trajectory


def with_recording(evaluated: EvaluationResult, path: Path | None, model: str) -> EvaluationResult:
    """Return a prediction's result for this model, with the data of a trajectory file of mini-swe-agent, if any.

    Raises SettingsError for a damaged file.
    """
    result = replace(evaluated, model=model)
    if path is None:
        return result
    recording = read_mini_trajectory(path, model)
    usage = RunUsage.of(recording.rollout)
    return replace(
        result,
        exit_reason=str(recording.rollout.exit_reason),
        steps=len(recording.rollout.steps),
        tokens=usage.tokens,
        cost_usd=recording.cost_usd,
        unpriced=usage.unpriced,
        estimated=usage.estimated,
    )


def trajectory_json(result: EvaluationResult, rollout: Trajectory) -> Mapping[str, Any]:
    """Return a rollout in the format of `traj.json`."""
    return {
        "instance_id": result.instance_id,
        "model_name_or_path": result.model,
        "attempt": result.attempt,
        **rollout.header(),
        **rollout.ending(),
        "messages": [m.to_json() for m in rollout.messages],
    }
