"""Represent codebase states (original, buggy, weakened, repaired) as a snapshot with some files changed.

A state is a value. It is made only from the immutable snapshot, never from the output of a run, and two states with the
same files have the same `tree_hash`, regardless of how they were made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry, Patch, apply_patch, make_patch
from pytest_ssr.project.snapshot import FileStamp, hash_of
from pytest_ssr.sandbox.counting import counted

_MAX_NAME_BYTES, _MAX_PATH_BYTES, _MAX_FOLDERS = 255, 3000, 500
"""Limits for a new file: those of file systems, with room for the path of the folder that holds the tree."""

if TYPE_CHECKING:
    from pytest_ssr.project.snapshot import Snapshot
    from pytest_ssr.sandbox.protocol import Sandbox, SandboxProvider


@dataclass(frozen=True, slots=True)
class CodebaseState:
    """A snapshot with some files changed."""

    snapshot: Snapshot
    """The snapshot that the state is based on."""
    changes: Mapping[str, FileEntry | None] = field(default_factory=dict)
    """Relative path to the new file, or None if it is deleted. Contains no file that equals the snapshot's."""

    def entry(self, path: str) -> FileEntry | None:
        """Return one file, or None if the state does not have it."""
        if path in self.changes:
            return self.changes[path]
        return self.snapshot.entry(path) if path in self.snapshot.files else None

    @property
    def tree_hash(self) -> str:
        """Hash of all files; equal only for equal trees."""
        if not self.changes:
            return self.snapshot.tree_hash
        files = dict(self.snapshot.files)
        for path, entry in self.changes.items():
            if entry is None:
                files.pop(path, None)
            else:
                files[path] = FileStamp(entry.mode, hashlib.sha256(entry.data).hexdigest())
        return hash_of(files)

    def replace(self, new: Mapping[str, FileEntry | None]) -> CodebaseState:
        """Return the state with these files changed as well."""
        merged = {**self.changes, **new}
        changes = {}
        for path in sorted(merged):
            original = self.snapshot.entry(path) if path in self.snapshot.files else None
            if merged[path] != original:
                changes[path] = merged[path]
        return CodebaseState(self.snapshot, changes)

    def apply(self, patch: Patch) -> CodebaseState:
        """Return the state after a patch; raises ArtifactError if it does not apply exactly."""
        changed = apply_patch(patch, self.entry)
        for path, entry in changed.items():
            if entry is not None and entry.mode == 0o120000:
                raise ArtifactError(f"{path}: a patch may not make or change a symlink; use a regular file")
        return self.replace(changed)._checked_paths()

    def restore(self, paths: Collection[str]) -> CodebaseState:
        """Return the state with these files as in the snapshot; raises ArtifactError if other files are in the way."""
        return CodebaseState(self.snapshot, {p: e for p, e in self.changes.items() if p not in paths})._checked_paths()

    def _checked_paths(self) -> CodebaseState:
        """Return the state itself; raises ArtifactError if a new file cannot be created because of its name or path."""
        new = [p for p, entry in self.changes.items() if entry is not None and p not in self.snapshot.files]
        if not new:
            return self
        files = {p for p in {*self.snapshot.files, *self.changes} if self.changes.get(p, True) is not None}
        folders = {str(folder) for p in files for folder in PurePosixPath(p).parents}
        for path in new:
            above = [str(folder) for folder in PurePosixPath(path).parents]
            raw = path.encode("utf-8", "surrogateescape")
            too_long = len(raw) > _MAX_PATH_BYTES or max(map(len, raw.split(b"/"))) > _MAX_NAME_BYTES
            if too_long or len(above) > _MAX_FOLDERS:
                reason = (
                    "the name is too long for a file system" if too_long else f"it is over {_MAX_FOLDERS} folders deep"
                )
                raise ArtifactError(f"{path[:60]}... cannot be written: {reason}")
            # Compiled files are not part of the tree, but exist in the copy.
            target = self.snapshot.directory / path
            has_cache = target.is_dir() and (target.name == "__pycache__" or any(target.rglob("__pycache__")))
            if path in folders or has_cache:
                raise ArtifactError(f"{path} cannot be written: it is a folder")
            if (file := next((p for p in above if p in files), None)) is not None:
                raise ArtifactError(f"{path} cannot be written: {file} is a file or a symlink, not a folder")
        return self

    def patch_from(self, other: CodebaseState) -> Patch:
        """Return the patch from another state of the same snapshot to this one."""
        paths = sorted({*self.changes, *other.changes})
        pairs = {p: (other.entry(p), self.entry(p)) for p in paths}
        return make_patch({p: pair for p, pair in pairs.items() if pair[0] != pair[1]})

    def open(self, provider: SandboxProvider, *, readable: Sequence[Path] = (), hidden: Sequence[str] = ()) -> Sandbox:
        """Open a sandbox that shows this state at the project's own path."""
        mount_at = str(self.snapshot.origin)
        with counted():
            sandbox = provider.open(self.snapshot.directory, mount_at=mount_at, readable=readable, hidden=hidden)
        try:
            for path, entry in self.changes.items():
                for compiled in self.snapshot.compiled(path):
                    # The bytecode of the original file would reveal its content.
                    sandbox.remove(compiled)
                if entry is None:
                    sandbox.remove(path)
                else:
                    sandbox.write(path, entry.data, executable=entry.mode == 0o100755)
        except BaseException:
            sandbox.close()
            raise
        return sandbox
