"""The work of one attempt at a task: a sandbox on the task's tree, and the patch that is collected from it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from harness.agents.patch_collector import collect_patch
from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace, open_workspace
from harness.solvers.protocol import SolverTask, encode_patch
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.patch import Patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState


def start_of(task: SolverTask) -> CodebaseState:
    """Return the state of a task's tree, from which patches are made."""
    return CodebaseState(replace(take_snapshot(task.folder, task.scratch / "trees"), origin=task.origin))


class SolverWork:
    """The sandbox of one attempt, and its patch."""

    def __init__(self, task: SolverTask, start: CodebaseState) -> None:
        """start: the state of the task's tree."""
        self._task, self._start = task, start
        self.patch: Patch | None = None

    def open(self) -> AbstractContextManager[Workspace]:
        """Return the workspace of the attempt, which opens a new sandbox on the task's tree."""
        task = self._task
        return open_workspace(task.provider, task.interpreter, task.folder, shown_at=task.origin)

    def diff(self, workspace: Workspace) -> Patch:
        """Return the changes so far; raises ArtifactError for a tree that cannot be submitted."""
        return collect_patch(workspace.sandbox, self._task.interpreter, self._start)

    def collect(self, workspace: Workspace) -> Observation:
        """Collect the patch, unless nothing is changed or the tree cannot be submitted."""
        try:
            patch = self.diff(workspace)
        except ArtifactError as error:
            return Observation(f"this cannot be submitted: {error}", 1)
        if not patch.data.strip():
            return Observation("nothing is changed; there is nothing to submit", 1)
        self.patch = patch
        return Observation("submitted", 0, done=True, result=encode_patch(patch))

    def collect_partial(self, workspace: Workspace) -> Mapping[str, object]:
        """Collect the patch so far of an attempt that passed a limit, or the reason why it cannot be submitted."""
        try:
            patch = self.diff(workspace)
        except (ArtifactError, SandboxError) as error:
            return {"left": f"the partial work cannot be submitted: {error}"}
        if not patch.data.strip():
            return {}
        self.patch = patch
        return encode_patch(patch)
