"""Create the start commit of a task: the project with its bug and the weakened tests, without any history."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from harness.exporters.protocol import Task
from harness.exporters.skipped import SkippedError, damaged
from pytest_ssr.errors import ArtifactError, StoreError, StoreWriteError
from pytest_ssr.project.snapshot import FileStamp, Snapshot, hash_of
from pytest_ssr.project.solver_checkout import write_solver_tree
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact

NO_TREE = "the store no longer has the project's files, which the start commit needs"


def start_of(task: Task, artifact: BugArtifact, repository: Path | None = None) -> str:
    """Return the hash of the commit that a solver's tree starts with; it depends only on the files.

    repository: a bare repository to put the commit into, created if missing. Raises SkippedError if the project's files
    are missing or the artifact does not apply to them, StoreWriteError if git fails.
    """
    original = CodebaseState(snapshot_of(task))
    with tempfile.TemporaryDirectory(prefix="ssr-start-") as temporary:
        folder = Path(temporary, "tree")
        try:
            write_solver_tree(original.apply(artifact.bug).apply(artifact.weaken), folder)
        except (ArtifactError, StoreError, OSError) as error:
            raise damaged(f"its start commit cannot be created: {error}") from None
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        if repository is not None:
            if not repository.is_dir():
                repository.mkdir(parents=True)
                _git(repository, "init", "-q", "--bare")
            _git(repository, "fetch", "-q", str(folder), f"+HEAD:refs/heads/{task.id}")
    return commit


def snapshot_of(task: Task) -> Snapshot:
    """Return the snapshot of the project's files in the store; raises SkippedError if it is missing or incomplete."""
    try:
        manifest = json.loads((task.tree / "manifest.json").read_text(encoding="utf-8"))
        files = {path: FileStamp(mode, sha256) for path, (mode, sha256) in manifest.items()}
        is_complete = hash_of(files) == task.tree_hash and (task.tree / "tree").is_dir()
    except (OSError, ValueError, TypeError, AttributeError):
        is_complete = False
    if not is_complete:
        raise SkippedError(NO_TREE)
    return Snapshot(task.tree / "tree", files, task.tree_hash, task.tree / "tree")


def _git(folder: Path, *argv: str) -> bytes:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", "-C", str(folder), *argv]
    try:
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", b"") or str(error).encode()
        raise StoreWriteError(f"git failed in {folder}: {output.decode(errors='replace').strip()}") from None
