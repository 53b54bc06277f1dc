"""Write the folders of Harbor's trials, as Harbor 0.26 writes them, and trajectories of other agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def steps_of(*replies: str, **metrics: Any) -> list[dict[str, Any]]:
    """Return the steps of a conversation in which each reply calls `bash`."""
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "source": "system", "message": "be brief"},
        {"step_id": 2, "source": "user", "message": "repair it"},
    ]
    for i, reply in enumerate(replies):
        steps.append(
            {
                "step_id": len(steps) + 1,
                "source": "agent",
                "message": reply,
                "tool_calls": [{"tool_call_id": f"c{i}", "function_name": "bash", "arguments": {"command": "ls"}}],
                "observation": {"results": [{"source_call_id": f"c{i}", "content": f"saw {i}"}]},
                "metrics": {"prompt_tokens": 10, "completion_tokens": 2, **metrics},
            }
        )
    return steps


def trajectory_of(*replies: str, **fields: Any) -> dict[str, Any]:
    """Return a trajectory of another agent."""
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s1",
        "agent": {"name": "terminus-2", "version": "2.0", "model_name": "org/m"},
        "steps": steps_of(*replies),
        **fields,
    }


def result_of(name: str, **fields: Any) -> dict[str, Any]:
    """Return the result of a resolved trial."""
    return {
        "schema_version": 1,
        "id": f"id-{name}",
        "task_name": "org/own__shop-1",
        "trial_name": name,
        "agent_info": {"name": "terminus-2", "version": "2.0", "model_info": {"name": "m", "provider": "org"}},
        "agent_result": {"n_input_tokens": 30, "n_cache_tokens": 5, "n_output_tokens": 4, "cost_usd": 0.5},
        "verifier_result": {"rewards": {"reward": 1.0, "tests": 1.0}},
        "exception_info": None,
        "started_at": "2026-11-29T17:17:38.395556Z",
        "finished_at": "2026-11-29T17:18:36.884209Z",
        "agent_execution": {"started_at": "2026-11-29T17:17:40Z", "finished_at": "2026-11-29T17:17:42.5Z"},
        "step_results": None,
        **fields,
    }


def failure(kind: str, valid: bool | None) -> dict[str, Any]:
    """Return the fields of a result with an exception; valid: Harbor's judgement of the reward, if it wrote one."""
    policy = {} if valid is None else {"policy": {"should_retry": False, "has_valid_reward": valid}}
    return {"exception_info": {"exception_type": kind, "exception_message": "m", "exception_traceback": "t", **policy}}


def trial(
    job: Path, name: str, trajectory: dict[str, Any] | None = None, *, running: bool = False, **fields: Any
) -> Path:
    """Write a trial's folder, without a result if it is still running."""
    folder = job / name
    (folder / "agent").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"trial_name": name}))
    (folder / "trial.log").write_text("started\n")
    if trajectory is not None:
        (folder / "agent" / "trajectory.json").write_text(json.dumps(trajectory))
    if not running:
        (folder / "result.json").write_text(json.dumps(result_of(name, **fields), indent=4))
    return folder
