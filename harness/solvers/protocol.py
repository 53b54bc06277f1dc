"""The seam for solvers, and what one may see: the weakened tree as a fresh repository, and the reversed weakening."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.trajectory import Journal, Trajectory
from pytest_ssr.execution.interpreter import Interpreter
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox.protocol import SandboxProvider
from pytest_ssr.settings import RuleSettings


@dataclass(frozen=True, slots=True)
class SolverTask:
    """What a solver is given; it holds nothing of the bug's diff or of the original."""

    id: str
    """The artifact's content id."""
    folder: Path
    """A repository of one commit: the buggy code with weakened tests. Nobody writes there."""
    origin: Path
    """Where the project lies on this machine: its tree is shown there, so that installations of it resolve."""
    specification: Patch
    """The reversed weakening: the tests that the repaired code has to pass. Empty for a task in words."""
    statement: str
    """What is to be done, in words; empty where the specification says it all."""
    interpreter: Interpreter
    provider: SandboxProvider
    settings: RuleSettings
    scratch: Path
    """A folder for what a solver wants to keep between attempts at this task."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What a solver hands in."""

    patch: Patch | None
    """A diff on the task's tree; None where it hands in nothing."""
    trajectory: Trajectory
    """How it came about."""


class Solver(Protocol):
    """Repairs."""

    @property
    def name(self) -> str:
        """As users name it."""

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Make one attempt, independent of all others at the task, and close the journal.

        A fault of ours is in the trajectory's exit reason (`aborted`); such an attempt gets no grade.
        """
