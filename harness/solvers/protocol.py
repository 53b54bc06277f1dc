"""The interface of solvers, and their input: the weakened tree as a new repository, and the reversed weakening."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.agents.prompts import DEFAULT, Prompts
from harness.records.trajectory import Journal, Trajectory
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.test_runners import PYTEST, TestRunner
from pytest_ssr.patch import Patch
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.sandbox.protocol import SandboxProvider
from pytest_ssr.settings import RuleSettings

_TEXT, _BYTES = "patch", "patch_base64"


def encode_patch(patch: Patch) -> dict[str, object]:
    """Return the result of a rollout that submits a patch: its text, plus base64 if it is not valid text."""
    text = patch.data.decode("utf-8", "replace")
    encoded = {} if text.encode() == patch.data else {_BYTES: base64.b64encode(patch.data).decode()}
    return {_TEXT: text, **encoded}


def decode_patch(result: Mapping[str, object]) -> Patch | None:
    """Return the patch in a rollout's result, None if it has none; raises ArtifactError for an invalid one."""
    name = next((n for n in (_BYTES, _TEXT) if n in result), None)
    if name is None:
        return None
    text = str(result[name])
    try:
        data = base64.b64decode(text, validate=True) if name == _BYTES else text.encode("utf-8", "surrogateescape")
    except ValueError as error:
        raise ArtifactError(f"{name} cannot be read: {error}") from None
    return Patch.parse(data)


@dataclass(frozen=True, slots=True)
class SolverTask:
    """The input of a solver; it contains nothing of the bug's diff or of the original code."""

    id: str
    """The artifact's content id."""
    folder: Path
    """A repository of one commit: the buggy code with weakened tests. It must not be modified."""
    origin: Path
    """The project's path on this machine: the tree is mounted there, so that installations of it resolve."""
    specification: Patch
    """The reversed weakening: the tests that the repaired code must pass. Empty for a task with a statement."""
    statement: str
    """A description of the task; empty if the specification is sufficient."""
    interpreter: Interpreter
    provider: SandboxProvider
    settings: RuleSettings
    scratch: Path
    """A folder for data that a solver shares between attempts at this task."""
    test_runner: TestRunner = PYTEST
    """Starts the tests."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of one attempt of a solver."""

    patch: Patch | None
    """A diff on the task's tree; None if nothing was submitted."""
    trajectory: Trajectory
    """The record of the attempt."""


class Solver(Protocol):
    """Repairs buggy trees."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Run one attempt, independent of all others at the task, and close the journal.

        An infrastructure failure sets the trajectory's exit reason (status `aborted`); such an attempt gets no grade.
        """


def render_task(task: SolverTask, prompts: Prompts = DEFAULT) -> str:
    """Return the prompt: the statement if the task has one, or else the tests to be improved."""
    command = task.test_runner.shown_command()
    specification = task.specification.data.decode("utf-8", "replace").rstrip("\n").replace("```", "` ` `")
    values = {
        "root": task.origin,
        "command": command,
        "specification": specification,
        "statement": task.statement,
    }
    described = "solver_statement" if command else "solver_instruction"
    return prompts.fill(described if task.statement else "solver_task", **values)
