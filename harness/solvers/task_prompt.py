"""Render the prompt of a task, which is the same for every agent."""

from __future__ import annotations

from harness.agents.prompts import prompt
from harness.solvers.protocol import SolverTask


def render_task(task: SolverTask) -> str:
    """Return the prompt: the statement if the task has one, or else the tests to be improved."""
    specification = task.specification.data.decode("utf-8", "replace").rstrip("\n").replace("```", "` ` `")
    values = {"root": task.origin, "specification": specification, "statement": task.statement}
    return prompt("solver_statement" if task.statement else "solver_task", **values)
