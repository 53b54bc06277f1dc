"""Report what the rows of `ssr eval --dry-run` and `ssr run --dry-run` need."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from typing import Any

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.datasets import Instance
from harness.evaluation.grading import Grader
from harness.evaluation.plan import EnvironmentKind, Planner, RowPlan
from harness.records.task_choice import ChoiceCounts
from pytest_ssr.progress import format_duration
from pytest_ssr.sandbox.protocol import MIB


def report_plan(
    grader: Grader, instances: Sequence[Instance], counts: ChoiceCounts | None, terminal: Terminal, *, json: bool
) -> int:
    """Print the plan of each row; return 0 if all can run, 1 if not. counts: of an audit that leaves out rows."""
    rows = Planner(grader).plan(instances)
    summary = _summary(rows, keeps_trees=grader.keep_trees)
    if json:
        audit = {} if counts is None else {"audit": counts.to_json()}
        print(json_format.dumps({**summary, **audit, "rows": [row.to_json() for row in rows]}, indent=1))
    for row in rows:
        if row.blocked is None:
            terminal.echo(f"can run     {row.instance_id}  {_needs(row)}", "valid")
        else:
            terminal.echo(f"cannot run  {row.instance_id}  {row.blocked.message}", "bad")
    terminal.echo(_total(summary), "heading")
    return ExitCode.DONE if summary["can_run"] == len(rows) else ExitCode.NO


def _summary(rows: Sequence[RowPlan], *, keeps_trees: bool) -> dict[str, Any]:
    """Return totals over the rows that can run; estimates cover those whose value is known.

    keeps_trees: whether the trees of all rows take disk at the end, and not only those of one row at a time.
    """
    able = [row for row in rows if row.blocked is None]
    sizes = [row.disk_bytes or 0 for row in able]
    return {
        "total": len(rows),
        "can_run": len(able),
        "seconds": round(sum(row.seconds or 0.0 for row in able), 1),
        "seconds_unknown": sum(row.seconds is None for row in able),
        "disk_bytes": sum(sizes) if keeps_trees else max(sizes, default=0),
        "disk_unknown": sum(row.disk_bytes is None for row in able),
        "images_to_pull": len({row.image for row in able if row.image_is_here is False}),
    }


def _needs(row: RowPlan) -> str:
    parts = [row.runner, _environment(row)]
    if row.clone_source:
        parts.append(f"to be cloned from {row.clone_source}")
    parts.append(f"{format_duration(row.seconds)} last time" if row.seconds is not None else "time unknown")
    parts.append(f"{_mib(row.disk_bytes)} of disk" if row.disk_bytes is not None else "disk unknown")
    return ", ".join(filter(None, parts))


def _environment(row: RowPlan) -> str:
    if row.environment is EnvironmentKind.GIVEN:
        return row.python
    if row.environment is EnvironmentKind.BUILT:
        return "environment by uv"
    if row.environment is EnvironmentKind.TASK:
        return "containers of its task directory"
    if row.environment is EnvironmentKind.SYSTEM:
        return "an interpreter of the sandbox's machine"
    state = {
        True: f"here, {_mib(row.image_bytes or 0)}",
        False: f"to be pulled from {row.image_source}",
        None: "pulled if needed",
    }
    return f"image {row.image} ({state[row.image_is_here]})"


def _total(summary: dict[str, Any]) -> str:
    parts = [f"{summary['can_run']} of {summary['total']} rows can run"]
    if summary["seconds"]:
        parts.append(f"{format_duration(summary['seconds'])} on one worker")
    if summary["seconds_unknown"]:
        parts.append(f"{summary['seconds_unknown']} rows of unknown duration")
    parts.append(f"{_mib(summary['disk_bytes'])} of disk for trees")
    if summary["images_to_pull"]:
        parts.append(f"{summary['images_to_pull']} images to pull")
    return "; ".join(parts)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
