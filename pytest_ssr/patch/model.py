"""A patch: a sequence of file changes that can be parsed, reversed, selected from and split."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pytest_ssr.patch.changes import ChangeKind, FileChange, renumbered
from pytest_ssr.patch.parse import parse_files


@dataclass(frozen=True, slots=True)
class PatchStats:
    """The size of a diff; binary changes have no hunks and no lines."""

    files: int
    """Number of changed files."""
    hunks: int
    """Number of text hunks."""
    added: int
    """Number of added lines."""
    removed: int
    """Number of removed lines."""

    @property
    def lines(self) -> int:
        """Number of added and removed lines."""
        return self.added + self.removed


@dataclass(frozen=True, slots=True)
class Patch:
    """A git diff."""

    files: tuple[FileChange, ...] = ()
    """The changes, in the diff's order."""

    @classmethod
    def parse(cls, data: bytes) -> Patch:
        """Parse a git diff; raises ArtifactError with the line that is wrong, and what to do."""
        return cls(parse_files(data))

    @property
    def data(self) -> bytes:
        """The diff as bytes."""
        return b"".join(f.data for f in self.files)

    @property
    def stats(self) -> PatchStats:
        """The size of the diff."""
        return PatchStats(
            files=len(self._groups()),
            hunks=sum(len(f.hunks) for f in self.files),
            added=sum(f.added for f in self.files),
            removed=sum(f.removed for f in self.files),
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that the patch touches, old and new, sorted."""
        return tuple(sorted({p for f in self.files for p in (f.old_path, f.new_path) if p is not None}))

    def reverse(self) -> Patch:
        """Return the patch that undoes this one."""
        return Patch(tuple(f.reverse() for group in self._groups() for f in reversed(group)))

    def _groups(self) -> list[tuple[FileChange, ...]]:
        """Return the changes, grouped if they have one path: git deletes a file and adds a symlink in its place."""
        groups: list[tuple[FileChange, ...]] = []
        for change in self.files:
            if groups and change.kind is ChangeKind.ADDED and change.path == groups[-1][-1].old_path:
                groups[-1] += (change,)
            else:
                groups.append((change,))
        return groups

    def select(self, paths: Collection[str]) -> Patch:
        """Return the changes whose old or new path is one of `paths`."""
        wanted = set(paths)
        return Patch(tuple(f for f in self.files if wanted & {f.old_path, f.new_path}))

    def split_files(self) -> tuple[Patch, ...]:
        """Return one patch for each file."""
        return tuple(Patch(group) for group in self._groups())

    def split_hunks(self) -> tuple[Patch, ...]:
        """Return one patch for each hunk, each of which applies alone; a file without hunks gives one patch."""
        parts: list[Patch] = []
        for group in self._groups():
            change = group[0]
            if len(group) > 1 or len(change.hunks) < 2:
                parts.append(Patch(group))
                continue
            parts += [Patch((replace(change, hunks=renumbered((hunk,))),)) for hunk in change.hunks]
        return tuple(parts)
