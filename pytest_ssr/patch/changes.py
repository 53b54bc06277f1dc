"""Records of a diff: file changes, their hunks, and the content of files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.paths import name_line, quote

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
    """1-based first line in the old file, or the line before the hunk if it has no old lines."""
    old_count: int
    """Number of old lines, context included."""
    new_start: int
    """1-based first line in the new file, or the line before the hunk if it has no new lines."""
    new_count: int
    """Number of new lines, context included."""
    section: bytes
    """The text after the second `@@`."""
    lines: tuple[bytes, ...]
    """Lines with their prefix and newline; `\\ No newline at end of file` stays a line of its own."""
    head: bytes = field(default=b"", compare=False, repr=False)
    """The `@@` line as it was read, if git would write it differently."""

    @property
    def data(self) -> bytes:
        """The hunk in diff format."""
        head = self.head or b"@@ -%s +%s @@%s\n" % (
            _span(self.old_start, self.old_count),
            _span(self.new_start, self.new_count),
            self.section,
        )
        return head + b"".join(self.lines)

    def side(self, sign: bytes) -> list[bytes]:
        """Return the lines of the old side (`-`) or the new side (`+`), without prefix, as they are in the file."""
        result: list[bytes] = []
        included = False
        for line in self.lines:
            if line.startswith(b"\\"):
                if included:
                    result[-1] = result[-1].removesuffix(b"\n")
            else:
                included = line[:1] in (b" ", b"\n", sign)
                if included:
                    result.append(line[1:] or line)
        return result

    def reverse(self) -> Hunk:
        """Return the hunk that undoes this one; in each run the removed lines come first, as in git."""
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
    """Mode before; None if the diff does not state it."""
    new_mode: int | None
    """Mode after; None if the diff does not state it."""
    header: tuple[bytes, ...]
    """The lines before the first hunk."""
    hunks: tuple[Hunk, ...] = ()
    """The text hunks."""
    forward: tuple[bytes, ...] = ()
    """The binary block that produces the new content."""
    backward: tuple[bytes, ...] = ()
    """The binary block that produces the old content."""

    @property
    def path(self) -> str:
        """The new path, or the old path of a deleted file."""
        return self.new_path or self.old_path or ""

    @property
    def binary(self) -> bool:
        """Whether the content is given by binary blocks."""
        return bool(self.forward)

    @property
    def blobs(self) -> tuple[bytes, bytes]:
        """Git's ids of the old and the new content in the index line; empty without such a line."""
        index = next((x.split() for x in self.header if x.startswith(b"index ")), [b"", b""])
        old, _, new = index[1].partition(b"..")
        return old, new

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(line.startswith(b"+") for h in self.hunks for line in h.lines)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(line.startswith(b"-") for h in self.hunks for line in h.lines)

    @property
    def data(self) -> bytes:
        """The change in diff format."""
        return b"".join((*self.header, *(h.data for h in self.hunks), *self.forward, *self.backward))

    def reverse(self) -> FileChange:
        """Return the change that undoes this one; raises ArtifactError if it cannot be reversed."""
        if self.binary and not self.backward:
            raise ArtifactError(f"{self.path}: the binary patch cannot be reversed; make it with git diff --binary")
        if self.kind is ChangeKind.COPIED:
            raise ArtifactError(f"{self.path}: a copy cannot be reversed; make the diff with --no-renames")
        kinds = {ChangeKind.ADDED: ChangeKind.DELETED, ChangeKind.DELETED: ChangeKind.ADDED}
        undo = FileChange(
            kind=kinds.get(self.kind, self.kind),
            old_path=self.new_path,
            new_path=self.old_path,
            old_mode=self.new_mode,
            new_mode=self.old_mode,
            header=(),
            hunks=tuple(h.reverse() for h in renumbered(self.hunks)),
            forward=self.backward,
            backward=self.forward,
        )
        return replace(undo, header=_reversed_header(self, undo))


def renumbered(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    """Return the hunks with new starts computed from the old ones; the diff's own are never needed to apply it."""
    shift = 0
    numbered = []
    for hunk in hunks:
        start = hunk.old_start - bool(hunk.old_count) + shift + bool(hunk.new_count)
        numbered.append(replace(hunk, new_start=start, head=b""))
        shift += hunk.new_count - hunk.old_count
    return tuple(numbered)


def _reversed_header(change: FileChange, undo: FileChange) -> tuple[bytes, ...]:
    lines = [b"diff --git %s %s\n" % (quote("a/", undo.old_path or undo.path), quote("b/", undo.path))]
    index = next((x for x in change.header if x.startswith(b"index ")), None)
    if undo.kind is ChangeKind.ADDED:
        lines.append(b"new file mode %o\n" % (undo.new_mode or 0o100644))
    elif undo.kind is ChangeKind.DELETED:
        lines.append(b"deleted file mode %o\n" % (undo.old_mode or 0o100644))
    elif undo.old_mode != undo.new_mode and undo.old_mode and undo.new_mode:
        lines += [b"old mode %o\n" % undo.old_mode, b"new mode %o\n" % undo.new_mode]
    if undo.kind is ChangeKind.RENAMED:
        lines += [x for x in change.header if x.startswith((b"similarity ", b"dissimilarity "))]
        lines += [
            b"rename from %s\n" % quote("", undo.old_path or ""),
            b"rename to %s\n" % quote("", undo.path),
        ]
    if index is not None:
        hashes, *rest = index[len(b"index ") :].split()
        old, _, new = hashes.partition(b"..")
        swapped = new + b".." + old if new else old
        lines.append(b" ".join([b"index " + swapped, *rest]) + b"\n")
    if undo.binary:
        lines.append(b"GIT binary patch\n")
    elif undo.hunks:
        lines.append(name_line(b"--- ", "a/", undo.old_path))
        lines.append(name_line(b"+++ ", "b/", undo.new_path))
    return tuple(lines)


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines with their newlines; only `\\n` ends a line."""
    lines = data.split(b"\n")
    return [x + b"\n" for x in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
