"""The records of a diff: a patch is a sequence of file changes, a file change a sequence of hunks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.paths import name_line, quoted

SYMLINK = 0o120000


class ChangeKind(StrEnum):
    """What happens to a file."""

    ADDED = "added"
    DELETED = "deleted"
    MODIFIED = "modified"
    RENAMED = "renamed"
    COPIED = "copied"
    MODE = "mode"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a tree."""

    data: bytes
    """The content; the target for a symlink."""
    mode: int = 0o100644
    """Git's mode: 0o100644, 0o100755 or 0o120000."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One run of changed lines with its context."""

    old_start: int
    """1-based first line in the old file; the line before, when there are no old lines."""
    old_count: int
    """Lines of the old file it covers."""
    new_start: int
    """Likewise in the new file."""
    new_count: int
    """Likewise."""
    section: bytes
    """What follows the second `@@`."""
    lines: tuple[bytes, ...]
    """Lines with their prefix and newline; `\\ No newline at end of file` stays a line of its own."""
    head: bytes = field(default=b"", compare=False, repr=False)
    """The `@@` line as it was read, where git would write it otherwise."""

    @property
    def data(self) -> bytes:
        """The hunk as text."""
        head = self.head or b"@@ -%s +%s @@%s\n" % (
            _span(self.old_start, self.old_count),
            _span(self.new_start, self.new_count),
            self.section,
        )
        return head + b"".join(self.lines)

    def side(self, sign: bytes) -> list[bytes]:
        """Return the lines of the old side (`-`) or the new side (`+`), without prefix, as they stand in the file."""
        found: list[bytes] = []
        kept = False
        for line in self.lines:
            if line.startswith(b"\\"):
                if kept:
                    found[-1] = found[-1].removesuffix(b"\n")
            else:
                kept = line[:1] in (b" ", b"\n", sign)
                if kept:
                    found.append(line[1:] or line)
        return found

    def reverse(self) -> Hunk:
        """Return the hunk that undoes this one; in each run the removed lines come first, as git has it."""
        lines: list[bytes] = []
        removed: list[bytes] = []
        added: list[bytes] = []
        last = lines
        for line in self.lines:
            sign = line[:1]
            if sign == b"\\":
                last.append(line)
            elif sign in (b" ", b"\n"):
                lines += removed + added
                removed, added = [], []
                lines.append(line)
                last = lines
            elif sign == b"-":
                last = added
                added.append(b"+" + line[1:])
            else:
                last = removed
                removed.append(b"-" + line[1:])
        lines += removed + added
        return Hunk(self.new_start, self.new_count, self.old_start, self.old_count, self.section, tuple(lines))


def _span(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a patch does to one file."""

    kind: ChangeKind
    """Added, deleted, modified, renamed, copied, or its mode only."""
    old_path: str | None
    """Relative path before; None when added."""
    new_path: str | None
    """Relative path after; None when deleted."""
    old_mode: int | None
    """Mode before, where the diff tells."""
    new_mode: int | None
    """Mode after, where the diff tells."""
    header: tuple[bytes, ...]
    """The lines before the first hunk."""
    hunks: tuple[Hunk, ...] = ()
    """The text hunks."""
    forward: tuple[bytes, ...] = ()
    """The binary block that makes the new content."""
    backward: tuple[bytes, ...] = ()
    """The binary block that makes the old content."""

    @property
    def path(self) -> str:
        """The new path, or the old one of a deleted file."""
        return self.new_path or self.old_path or ""

    @property
    def binary(self) -> bool:
        """True when the content is given by binary blocks."""
        return bool(self.forward)

    @property
    def blobs(self) -> tuple[bytes, bytes]:
        """Git's ids of the old and the new content as the index line has them, empty where it is absent."""
        index = next((x.split() for x in self.header if x.startswith(b"index ")), [b"", b""])
        old, _, new = index[1].partition(b"..")
        return old, new

    @property
    def added(self) -> int:
        """How many lines are added."""
        return sum(line.startswith(b"+") for h in self.hunks for line in h.lines)

    @property
    def removed(self) -> int:
        """How many lines are removed."""
        return sum(line.startswith(b"-") for h in self.hunks for line in h.lines)

    @property
    def data(self) -> bytes:
        """The change as text."""
        return b"".join((*self.header, *(h.data for h in self.hunks), *self.forward, *self.backward))

    def reverse(self) -> FileChange:
        """Return the change that undoes this one; raises ArtifactError for a binary change without a way back."""
        if self.binary and not self.backward:
            raise ArtifactError(f"{self.path}: the binary patch holds no way back; make it with git diff --binary")
        if self.kind is ChangeKind.COPIED:
            raise ArtifactError(f"{self.path}: a copy cannot be reversed; make the diff with --no-renames")
        kinds = {ChangeKind.ADDED: ChangeKind.DELETED, ChangeKind.DELETED: ChangeKind.ADDED}
        turned = FileChange(
            kind=kinds.get(self.kind, self.kind),
            old_path=self.new_path,
            new_path=self.old_path,
            old_mode=self.new_mode,
            new_mode=self.old_mode,
            header=(),
            hunks=tuple(h.reverse() for h in _renumbered(self.hunks)),
            forward=self.backward,
            backward=self.forward,
        )
        return replace(turned, header=_reversed_header(self, turned))


def _renumbered(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    """Return the hunks with new starts that follow from the old ones; the diff's own are never needed to apply it."""
    shift = 0
    numbered = []
    for hunk in hunks:
        start = hunk.old_start - bool(hunk.old_count) + shift + bool(hunk.new_count)
        numbered.append(replace(hunk, new_start=start, head=b""))
        shift += hunk.new_count - hunk.old_count
    return tuple(numbered)


def _reversed_header(change: FileChange, turned: FileChange) -> tuple[bytes, ...]:
    lines = [b"diff --git %s %s\n" % (quoted("a/", turned.old_path or turned.path), quoted("b/", turned.path))]
    index = next((x for x in change.header if x.startswith(b"index ")), None)
    if turned.kind is ChangeKind.ADDED:
        lines.append(b"new file mode %o\n" % (turned.new_mode or 0o100644))
    elif turned.kind is ChangeKind.DELETED:
        lines.append(b"deleted file mode %o\n" % (turned.old_mode or 0o100644))
    elif turned.old_mode != turned.new_mode and turned.old_mode and turned.new_mode:
        lines += [b"old mode %o\n" % turned.old_mode, b"new mode %o\n" % turned.new_mode]
    if turned.kind is ChangeKind.RENAMED:
        lines += [x for x in change.header if x.startswith((b"similarity ", b"dissimilarity "))]
        lines += [
            b"rename from %s\n" % quoted("", turned.old_path or ""),
            b"rename to %s\n" % quoted("", turned.path),
        ]
    if index is not None:
        hashes, *rest = index[len(b"index ") :].split()
        old, _, new = hashes.partition(b"..")
        swapped = new + b".." + old if new else old
        lines.append(b" ".join([b"index " + swapped, *rest]) + b"\n")
    if turned.binary:
        lines.append(b"GIT binary patch\n")
    elif turned.hunks:
        lines.append(name_line(b"--- ", "a/", turned.old_path))
        lines.append(name_line(b"+++ ", "b/", turned.new_path))
    return tuple(lines)


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines with their newlines; only `\\n` ends a line."""
    lines = data.split(b"\n")
    return [x + b"\n" for x in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


@dataclass(frozen=True, slots=True)
class PatchStats:
    """How large a diff is; binary changes have no hunks and no lines."""

    files: int
    """Files changed."""
    hunks: int
    """Text hunks in all."""
    added: int
    """Lines added."""
    removed: int
    """Lines removed."""

    @property
    def lines(self) -> int:
        """Lines added and removed."""
        return self.added + self.removed


@dataclass(frozen=True, slots=True)
class Patch:
    """A git diff."""

    files: tuple[FileChange, ...] = ()
    """The changes, in the diff's order."""

    @classmethod
    def parse(cls, data: bytes) -> Patch:
        """Read a git diff; raises ArtifactError naming the line that is wrong, and what to do."""
        from pytest_ssr.patch.parse import parse_files

        return cls(parse_files(data))

    @property
    def data(self) -> bytes:
        """The diff as bytes."""
        return b"".join(f.data for f in self.files)

    @property
    def stats(self) -> PatchStats:
        """How large the diff is."""
        return PatchStats(
            files=len(self._groups()),
            hunks=sum(len(f.hunks) for f in self.files),
            added=sum(f.added for f in self.files),
            removed=sum(f.removed for f in self.files),
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is touched, old names and new ones, sorted."""
        return tuple(sorted({p for f in self.files for p in (f.old_path, f.new_path) if p is not None}))

    def reverse(self) -> Patch:
        """Return the patch that undoes this one."""
        return Patch(tuple(f.reverse() for group in self._groups() for f in reversed(group)))

    def _groups(self) -> list[tuple[FileChange, ...]]:
        """Return the changes, those of one path together: git deletes a file and adds a symlink in its place."""
        groups: list[tuple[FileChange, ...]] = []
        for change in self.files:
            if groups and change.kind is ChangeKind.ADDED and change.path == groups[-1][-1].old_path:
                groups[-1] += (change,)
            else:
                groups.append((change,))
        return groups

    def select(self, paths: Collection[str]) -> Patch:
        """Return the changes that touch any of these paths by either name."""
        wanted = set(paths)
        return Patch(tuple(f for f in self.files if wanted & {f.old_path, f.new_path}))

    def split_files(self) -> tuple[Patch, ...]:
        """Return one patch for each file."""
        return tuple(Patch(group) for group in self._groups())

    def split_hunks(self) -> tuple[Patch, ...]:
        """Return one patch for each hunk, each to be applied alone; a file without hunks is one item."""
        parts: list[Patch] = []
        for group in self._groups():
            change = group[0]
            if len(group) > 1 or len(change.hunks) < 2:
                parts.append(Patch(group))
                continue
            parts += [Patch((replace(change, hunks=_renumbered((hunk,))),)) for hunk in change.hunks]
        return tuple(parts)
