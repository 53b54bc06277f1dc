"""Solve a task of several steps: an attempt at each step, with its instruction, on the tree that the last one left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from harness.evaluation.harbor_grading import OpenTask, series
from harness.harbor.trial import Changes
from harness.records.trajectory import Journal, Trajectory, is_submitted
from harness.solvers.protocol import Solution, Solver, SolverTask, encode_patch
from pytest_ssr.patch import Patch
from pytest_ssr.project.solver_checkout import write_solver_tree
from pytest_ssr.sandbox.filesystem.workdirs import discard, new_folder


@dataclass(frozen=True, slots=True)
class PatchSeries(Patch):
    """The diffs of several steps, as one text."""

    text: bytes = b""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the series in a text."""
        return cls((), data)

    @property
    def data(self) -> bytes:
        """The text as bytes."""
        return self.text


@dataclass(frozen=True, slots=True)
class StepwiseSolver:
    """Lets a solver work on one step after the other."""

    solver: Solver
    opened: OpenTask

    @property
    def name(self) -> str:
        """The solver's name."""
        return self.solver.name

    @property
    def label(self) -> str:
        """The solver's name in tables."""
        return str(getattr(self.solver, "label", self.solver.name))

    @property
    def key(self) -> str:
        """What its attempts depend on."""
        return str(getattr(self.solver, "key", self.solver.name))

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Run one attempt at each step, up to the first that submits nothing; the record holds all of them."""
        diffs: list[str] = []
        work: list[Changes] = []
        done = journal.trajectory
        assert self.opened.instance.harbor is not None
        for index, step in enumerate(self.opened.instance.harbor.steps):
            folder = new_folder()
            try:
                tree = folder / "tree"
                write_solver_tree(self.opened.start(index, work), tree)
                own = replace(task, folder=tree, scratch=folder / "scratch", statement=step.instruction)
                header = {name: getattr(done, name) for name in ("rollout_id", "task_id", "role", "attempt", "model")}
                record = Journal(Trajectory(**header, provenance=done.provenance))
                solution = self.solver.solve(own, seed=seed + index, journal=record)
            finally:
                discard(folder)
            _append(journal, solution.trajectory)
            diff = solution.patch.data.decode("utf-8", "surrogateescape") if solution.patch is not None else ""
            diffs.append(diff)
            work.append(self.opened.work(index, work, diff)[0])
            if not is_submitted(solution.trajectory):
                break
        last = solution.trajectory
        patch = PatchSeries((), series(diffs).encode("utf-8", "surrogateescape")) if any(work) else None
        result = encode_patch(patch) if patch is not None else {}
        return Solution(patch, journal.end(last.exit_reason, last.detail, result))


def _append(journal: Journal, part: Trajectory) -> None:
    """Add the record of one step to that of all steps."""
    whole = journal.trajectory
    messages, calls, steps = len(whole.messages), len(whole.calls), len(whole.steps)
    if not messages:
        journal.describe(tools=part.tools, sampling=part.sampling, **part.provenance)
    for message in part.messages:
        journal.message(message)
    for call in part.calls:
        sent = tuple(item + messages if isinstance(item, int) else item for item in call.sent)
        journal.call(replace(call, i=call.i + calls, sent=sent, assistant_index=call.assistant_index + messages))
    for step in part.steps:
        index = step.observation_index + messages if step.observation_index >= 0 else -1
        journal.step(replace(step, id=step.id + steps, call=step.call + calls, observation_index=index))
