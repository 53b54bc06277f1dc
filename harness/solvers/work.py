"""The work of one attempt at a task: a sandbox on the task's tree, and the patch that is collected from it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from harness.agents.patch_collector import collect_patch
from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace, open_workspace
from harness.diffs import MissingToolError, apply_diff
from harness.records.trajectory import SUBMISSIONS
from harness.solvers.protocol import SolverTask, encode_patch
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.patch import Patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.protocol import MIB

MAX_PATCH_BYTES = 16 * MIB
"""Of a submitted patch file."""


def start_of(task: SolverTask) -> CodebaseState:
    """Return the state of a task's tree, from which patches are made."""
    return CodebaseState(
        replace(take_snapshot(task.folder, task.scratch / "trees", needs_python=False), origin=task.origin)
    )


class SolverWork:
    """The sandbox of one attempt, and its patch."""

    def __init__(self, task: SolverTask, start: CodebaseState, *, most: int = 1) -> None:
        """start: the state of the task's tree. most: submissions in the attempt; the last one is its patch."""
        self._task, self._start, self._most = task, start, most
        self._submissions: list[Patch] = []
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
        return self._submit(patch)

    def collect_file(self, workspace: Workspace, path: str) -> Observation:
        """Collect a patch file of the sandbox, unless it is not a patch of the task's tree."""
        try:
            patch = apply_diff(_read(workspace, path), self._start.entry).patch
            self._start.apply(patch)
        except (ArtifactError, MissingToolError) as error:
            return Observation(f"this cannot be submitted: {error}", 1)
        return self._submit(patch)

    def _submit(self, patch: Patch) -> Observation:
        if not patch.data.strip():
            return Observation("nothing is changed; there is nothing to submit", 1)
        self.patch = patch
        self._submissions.append(patch)
        remaining = self._most - len(self._submissions)
        if remaining:
            return Observation(f"submitted; you may submit {remaining} more times, and the last one is judged", 0)
        return Observation("submitted", 0, done=True, result=self._result(patch))

    def _result(self, patch: Patch) -> Mapping[str, object]:
        if self._most == 1:
            return encode_patch(patch)
        earlier = [encode_patch(p) for p in self._submissions[:-1]]
        return {**encode_patch(patch), SUBMISSIONS: len(self._submissions), "earlier": earlier}

    def submitted(self) -> Mapping[str, object] | None:
        """Return the result of the last submission of an attempt that may submit again; None without one."""
        return self._result(self._submissions[-1]) if self._submissions else None

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


def _read(workspace: Workspace, path: str) -> bytes:
    """Return a file of the sandbox, relative to the last command's folder; raises ArtifactError if it has none."""
    if not path.strip() or "\0" in path or any(0xD800 <= ord(c) < 0xE000 for c in path):
        raise ArtifactError(f"{path!r} is not the path of a file")
    limits = replace(workspace.limits, output_bytes=MAX_PATCH_BYTES)
    done = workspace.sandbox.exec(["cat", "--", path], limits=limits, env=workspace.env, cwd=workspace.cwd or None)
    if done.limit is not None:
        raise ArtifactError(f"{path} cannot be read: it passed the limit on {done.limit}")
    if done.exit_code != 0:
        raise ArtifactError(done.stderr.decode("utf-8", "replace").strip() or f"{path} cannot be read")
    return done.stdout
