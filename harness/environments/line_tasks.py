"""Tasks with one reply: rewrite the lines of a bug between two marks, graded as every other repair.

The prompt and the reply are those of the solver `lm:`, whose model learns them from static bugs. The place is given:
the smallest region with all of the bug. So a bug that is not within one region of one function is no task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.agents.tools.protocol import Observation, Tool
from harness.agents.turns import EndOfRollout
from harness.agents.workspace import Workspace
from harness.environments.solve_tasks import SolveTask, SolveWork, StoreTasks
from harness.records.messages import ToolCall
from harness.records.trajectory import ExitReason
from harness.rollouts.runner import RolloutRunner
from harness.solvers.protocol import SolverTask, encode_patch
from harness.solvers.writer.changed_function import changed_function
from harness.solvers.writer.failing_test import failure_in
from harness.solvers.writer.prompt import Failure, has_marks, lines_of, question
from harness.solvers.writer.regions import Region, regions_with_change, smallest_of
from pytest_ssr.campaign.factory import RunnerSource
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.storage.store import Store

_WRITE = "write_lines"


@dataclass(frozen=True, slots=True)
class LineTasks(StoreTasks):
    """The bugs of a store that are within a few lines, each with one reply."""

    def _task(self, folder: Path, runner_for: RunnerSource, store: Store) -> LineTask:
        """Return a bug as a task; raises ArtifactError if it is not valid, or not in one region."""
        task = StoreTasks._task(self, folder, runner_for, store)
        try:
            place = _place(task.rollouts)
        except ArtifactError:
            task.close()
            raise
        return LineTask(task.id, task.rollouts, place=place)


@dataclass(frozen=True, slots=True)
class Place:
    """The lines that are to be rewritten."""

    path: str
    start: int
    """The first byte of the function in its file."""
    region: Region
    failure: Failure

    def patched(self, state: CodebaseState, lines: str) -> CodebaseState:
        """Return a state with these lines in the place."""
        entry = state.entry(self.path)
        assert entry is not None
        first = self.start + len(self.region.before.encode())
        end = min(first + len(self.region.lines.encode()), len(entry.data))
        data = entry.data[:first] + lines.encode() + entry.data[end:]
        return state.replace({self.path: FileEntry(data, entry.mode)})


@dataclass(slots=True, kw_only=True)
class LineTask(SolveTask):
    """One bug to repair with one reply."""

    place: Place

    @property
    def system(self) -> str:
        """Nothing: the prompt says it all."""
        return ""

    def start(self, *, seed: int) -> LineWork:
        """Return the work of a new episode; raises LeakError if an agent could read the fix."""
        return LineWork(self.rollouts, *self.opened(), self.place)


class LineWork(SolveWork):
    """The work on a bug in one reply, with its grade."""

    def __init__(self, rollouts: RolloutRunner, task: SolverTask, start: CodebaseState, place: Place) -> None:
        super().__init__(rollouts, task, start)
        self._place = place

    @property
    def tools(self) -> Sequence[Tool]:
        """What a reply stands for; it takes the whole reply, and ends the episode."""
        return [_Write(self)]

    def prompt(self, workspace: Workspace) -> str:
        """Return the question for the lines."""
        return question(self._place.region, self._place.failure)[0]["content"]

    def action(self, text: str) -> ToolCall | None:
        """Return the call of the tool with a whole reply."""
        return ToolCall.parse("reply", _WRITE, json.dumps({"reply": text}))

    def write(self, reply: str) -> Observation:
        """Submit the lines of a reply; raises EndOfRollout for a reply of another form."""
        lines = lines_of(reply.strip())
        if lines is None:
            raise EndOfRollout(ExitReason.FORMAT, "the reply has no lines between the marks")
        self.patch = self._place.patched(self._start, lines).patch_from(self._start)
        return Observation("", 0, done=True, result=encode_patch(self.patch))


@dataclass(frozen=True, slots=True)
class _Write:
    work: LineWork
    name: str = _WRITE
    description: str = "Write the lines between the marks."

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""
        return {"type": "object", "properties": {"reply": {"type": "string"}}, "required": ["reply"]}

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Submit the lines of a reply."""
        return self.work.write(arguments["reply"])


def _place(rollouts: RolloutRunner) -> Place:
    """Return the place of a bug; raises ArtifactError if it is not within one region of a function."""
    original, artifact = rollouts.runner.original, rollouts.artifact
    regions: Sequence[Region] = ()
    if len(artifact.bug.paths) == 1:
        (path,) = artifact.bug.paths
        old, new = (state.entry(path) for state in (original, original.apply(artifact.bug)))
        changed = changed_function(path, old.data, new.data) if old is not None and new is not None else None
        before, after = (version.text for version in changed) if changed is not None else (None, None)
        if before is not None and after is not None and not has_marks(before) and not has_marks(after):
            regions = regions_with_change(after, before)
    if not regions:
        raise ArtifactError("the bug is not within a few lines of one function")
    assert changed is not None
    return Place(path, changed[1].scope.start, smallest_of(regions)[0], failure_in(rollouts.verdict, original))
