"""Parse git diffs into file changes, strictly, because a diff that is misread proves the wrong thing.

The format is that of `git help diff-format`, "Generating patch text with -p". The checks are those of `git apply`, and
more.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.changes import SYMLINK, ChangeKind, FileChange, Hunk
from pytest_ssr.patch.paths import check_path, header_pairs, unquote

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)\n", re.DOTALL)
_FULL_INDEX = re.compile(rb"(?:[0-9a-f]{40}\.\.[0-9a-f]{40}|[0-9a-f]{64}\.\.[0-9a-f]{64})")
_MODES = {b"100644": 0o100644, b"100755": 0o100755, b"120000": SYMLINK}
_COMBINED = (b"diff --cc ", b"diff --combined ")
_MODE_PREFIXES = (b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ")
_MAX_BYTES = 16 << 20
_NAME_PREFIXES = (b"rename from ", b"rename to ", b"copy from ", b"copy to ")


def parse_files(data: bytes) -> tuple[FileChange, ...]:
    """Return the changes of a diff; text before the first `diff --git` is ignored, but must not be a diff itself."""
    if len(data) > _MAX_BYTES:
        raise ArtifactError(f"the diff is larger than {_MAX_BYTES >> 20} MiB")
    lines = data.split(b"\n")
    cut_off = bool(lines.pop())
    lines = [x + b"\n" for x in lines]
    start = next((i for i, x in enumerate(lines) if x.startswith(b"diff --git ")), len(lines))
    reader = _Reader(lines, start)
    reader.check_preamble()
    if start == len(lines) and data.strip():
        raise ArtifactError("line 1: no `diff --git` line; make the diff with git diff")
    if start < len(lines) and cut_off:
        raise ArtifactError(
            f"line {len(lines) + 1}: the last line has no newline, the diff is cut off; end it with a newline"
        )
    files: list[FileChange] = []
    seen: set[str] = set()
    while not reader.at_end:
        begin = reader.at
        change = reader.file()
        read_only = change.old_path if change.kind is ChangeKind.COPIED else None
        names = {p for p in (change.old_path, change.new_path) if p is not None and p != read_only}
        if names & seen and not (files and _replaces(files[-1], change)):
            name = next(iter(sorted(names & seen)))
            raise reader.fail(f"{name} is changed twice; make one diff of both changes", at=begin)
        seen |= names
        files.append(change)
    return tuple(files)


def _replaces(deleted: FileChange, added: FileChange) -> bool:
    """Return whether two changes replace a file with a symlink or the reverse: git deletes one and adds the other."""
    return (
        (deleted.kind, added.kind) == (ChangeKind.DELETED, ChangeKind.ADDED)
        and deleted.old_path == added.new_path
        and (deleted.old_mode == SYMLINK) != (added.new_mode == SYMLINK)
    )


class _Reader:
    def __init__(self, lines: list[bytes], start: int) -> None:
        self.lines = lines
        self.at = start

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.lines)

    @property
    def line(self) -> bytes:
        return self.lines[self.at] if self.at < len(self.lines) else b""

    def take(self) -> bytes:
        line = self.line
        self.at += 1
        return line

    def fail(self, problem: str, *, at: int | None = None) -> ArtifactError:
        return ArtifactError(f"line {(self.at if at is None else at) + 1}: {problem}")

    def check_preamble(self) -> None:
        for at, line in enumerate(self.lines[: min(self.at, len(self.lines) - 1)]):
            if line.startswith(_COMBINED):
                raise self.fail("a combined diff of a merge; diff against one parent", at=at)
            if line.startswith(b"--- ") and self.lines[at + 1].startswith(b"+++ "):
                raise self.fail("a change without `diff --git` before it; make the diff with git diff", at=at)

    def file(self) -> FileChange:
        begin = self.at
        first = self.take()
        if first.startswith(_COMBINED):
            raise self.fail("a combined diff of a merge; diff against one parent", at=begin)
        if not first.startswith(b"diff --git "):
            text = first.rstrip()[:60].decode(errors="replace")
            raise self.fail(f"expected `diff --git`, found {text!r}; remove what git diff did not write", at=begin)
        if first.endswith(b"\r\n"):
            raise self.fail("the diff's own lines end in CRLF; save it with the line endings that git wrote", at=begin)
        facts: dict[str, str | int] = {}
        names: dict[bytes, str | None] = {}
        while not self.at_end and not self.line.startswith((b"diff ", b"@@ ", b"GIT binary patch")):
            self._header_line(facts, names)
        if self.line.startswith(b"GIT binary patch"):
            self.take()
            forward = self._block()
            backward = self._block() if self.line.startswith((b"literal ", b"delta ")) else ()
            header = tuple(self.lines[begin : self.at - len(forward) - len(backward)])
            return self._change(begin, first, facts, names, header, (), (forward, backward))
        header = tuple(self.lines[begin : self.at])
        hunks = []
        while self.line.startswith(b"@@ "):
            hunks.append(self._hunk())
        if len(names) != (2 if hunks else 0):
            raise self.fail("`---`, `+++` and hunks go together, and one is missing; make the diff again", at=begin)
        return self._change(begin, first, facts, names, header, tuple(hunks), ((), ()))

    def _header_line(self, facts: dict[str, str | int], names: dict[bytes, str | None]) -> None:
        at = self.at
        line = self.take().rstrip(b"\n")
        for prefix in (*_MODE_PREFIXES, *_NAME_PREFIXES):
            if line.startswith(prefix):
                key, value = prefix.decode().strip(), line[len(prefix) :]
                if key in facts:
                    raise self.fail(f"`{key}` is given twice; make the diff again", at=at)
                facts[key] = self._mode(value, at) if prefix in _MODE_PREFIXES else self._path(value, at)
                return
        if line.startswith((b"--- ", b"+++ ")):
            if line[:4] in names:
                raise self.fail(f"a second `{line[:3].decode()}` line; make the diff again", at=at)
            names[line[:4]] = self._side(line, at)
        elif line.startswith((b"Binary files ", b"Files ")):
            raise self.fail("a binary file without its content; make the diff with git diff --binary", at=at)
        elif line.startswith(b"@@@ "):
            raise self.fail("a combined diff of a merge; diff against one parent", at=at)
        elif line.startswith(b"index "):
            parts = line.split()
            if len(parts) not in (2, 3):
                raise self.fail("the index line is damaged; make the diff again", at=at)
            if len(parts) == 3:
                facts["index"] = self._mode(parts[2], at)
        elif not line.startswith((b"similarity index ", b"dissimilarity index ")):
            text = line[:60].decode(errors="replace")
            raise self.fail(f"{text!r} is not part of a git diff; remove it, or make the diff again", at=at)

    def _mode(self, text: bytes, at: int) -> int:
        if text not in _MODES:
            raise self.fail(
                "only regular files, executable files and symlinks can be changed; leave the file out", at=at
            )
        return _MODES[text]

    def _side(self, line: bytes, at: int) -> str | None:
        prefix = "a/" if line.startswith(b"---") else "b/"
        raw = line[4:].removesuffix(b"\t")
        if raw == b"/dev/null":
            return None
        name = self._path(raw, at, prefixed=True)
        if not name.startswith(prefix):
            raise self.fail(f"{name!r} does not begin with {prefix}; make the diff with git diff", at=at)
        return self._checked(name[2:], at)

    def _path(self, raw: bytes, at: int, *, prefixed: bool = False) -> str:
        try:
            return unquote(raw) if prefixed else check_path(unquote(raw))
        except ValueError as error:
            raise self.fail(str(error), at=at) from None

    def _hunk(self) -> Hunk:
        at = self.at
        match = _HUNK.match(self.take())
        if match is None:
            raise self.fail("the hunk's header is damaged; make the diff again", at=at)
        old_start, new_start = int(match[1]), int(match[3])
        old_count = 1 if match[2] is None else int(match[2])
        new_count = 1 if match[4] is None else int(match[4])
        old, new = old_count, new_count
        lines: list[bytes] = []
        while old > 0 or new > 0 or self.line.startswith(b"\\"):
            sign = self.line[:1]
            if sign not in (b" ", b"+", b"-", b"\\", b"\n") or self.at_end:
                raise self.fail("the hunk is shorter than its header states; make the diff again")
            if sign == b"\\" and (not lines or lines[-1].startswith(b"\\")):
                raise self.fail("`No newline at end of file` must follow a line of the hunk; make the diff again")
            old -= sign in (b" ", b"\n", b"-")
            new -= sign in (b" ", b"\n", b"+")
            lines.append(self.take())
        if old or new:
            raise self.fail("the hunk's lines do not match the counts in its header; make the diff again", at=at)
        if self.line[:1] in (b" ", b"+", b"-"):
            raise self.fail("the hunk is longer than its header states; make the diff again")
        hunk = Hunk(old_start, old_count, new_start, new_count, match[5], tuple(lines))
        self._check_hunk(hunk, at)
        return hunk if hunk.data.startswith(self.lines[at]) else replace(hunk, head=self.lines[at])

    def _check_hunk(self, hunk: Hunk, at: int) -> None:
        if (hunk.old_count and not hunk.old_start) or (hunk.new_count and not hunk.new_start):
            raise self.fail("the hunk begins at line 0, but lines count from 1; make the diff again", at=at)
        if not any(x.startswith((b"+", b"-")) for x in hunk.lines):
            raise self.fail("the hunk changes nothing; remove it", at=at)
        for side in (hunk.side(b"-"), hunk.side(b"+")):
            if any(not x.endswith(b"\n") for x in side[:-1]):
                raise self.fail("`No newline at end of file` before the last line; make the diff again", at=at)

    def _block(self) -> tuple[bytes, ...]:
        at = self.at
        if not self.line.startswith((b"literal ", b"delta ")):
            raise self.fail("a binary patch needs `literal` or `delta`; make the diff with git diff --binary")
        lines = [self.take()]
        while not self.at_end:
            lines.append(self.take())
            if lines[-1] == b"\n":
                return tuple(lines)
        raise self.fail("the binary patch has no empty line at its end, so it is cut off; make it again", at=at)

    def _change(
        self,
        begin: int,
        first: bytes,
        facts: dict[str, str | int],
        names: dict[bytes, str | None],
        header: tuple[bytes, ...],
        hunks: tuple[Hunk, ...],
        blocks: tuple[tuple[bytes, ...], tuple[bytes, ...]],
    ) -> FileChange:
        kind, old, new = self._names(begin, first, facts, names)
        old_mode = facts.get("old mode", facts.get("deleted file mode", facts.get("index")))
        new_mode = facts.get("new mode", facts.get("new file mode", facts.get("index")))
        if ("old mode" in facts) != ("new mode" in facts):
            raise self.fail(f"`old mode` and `new mode` of {new} go together; make the diff again", at=begin)
        if kind is ChangeKind.ADDED:
            old_mode = None
        elif kind is ChangeKind.DELETED:
            new_mode = None
        elif (old_mode == SYMLINK) != (new_mode == SYMLINK):
            raise self.fail(f"{new} changes between a file and a symlink; use another path for the new one", at=begin)
        if kind is ChangeKind.MODIFIED and not hunks and not blocks[0]:
            if "new mode" not in facts:
                raise self.fail(f"the diff has no change for {new}; it is cut off, make it again", at=begin)
            kind = ChangeKind.MODE
        change = FileChange(
            kind=kind,
            old_path=old,
            new_path=new,
            old_mode=int(old_mode) if old_mode is not None else None,
            new_mode=int(new_mode) if new_mode is not None else None,
            header=header,
            hunks=hunks,
            forward=blocks[0],
            backward=blocks[1],
        )
        self._check_content(change, begin)
        return change

    def _check_content(self, change: FileChange, begin: int) -> None:
        kind, path = change.kind, change.path
        for hunk in change.hunks:
            if (kind is ChangeKind.ADDED and hunk.old_count) or (kind is ChangeKind.DELETED and hunk.new_count):
                raise self.fail(f"{path} is {kind}, but a hunk contradicts that; make the diff again", at=begin)
        if change.binary and not _FULL_INDEX.fullmatch(b"..".join(change.blobs)):
            raise self.fail("a binary patch without a full index line; make the diff with git diff --binary", at=begin)

    def _names(
        self, begin: int, first: bytes, facts: dict[str, str | int], names: dict[bytes, str | None]
    ) -> tuple[ChangeKind, str | None, str | None]:
        pairs = header_pairs(first[len(b"diff --git ") :].rstrip(b"\n"))
        old: str | None
        new: str | None
        old = new = next((a for a, b in pairs if a == b), None)
        kind = ChangeKind.MODIFIED
        for action, moved in (("rename", ChangeKind.RENAMED), ("copy", ChangeKind.COPIED)):
            if (f"{action} from" in facts) != (f"{action} to" in facts):
                raise self.fail(f"`{action} from` and `{action} to` go together; make the diff again", at=begin)
            if f"{action} from" in facts:
                kind, old, new = moved, str(facts[f"{action} from"]), str(facts[f"{action} to"])
        if old is None or new is None:
            problem = "the header's names are not a/NAME and b/NAME with the same NAME, and no rename is stated"
            raise self.fail(f"{problem}; make the diff with git diff and its usual prefixes", at=begin)
        self._checked(new, begin)
        if (old, new) not in pairs or (kind is not ChangeKind.MODIFIED and old == new):
            raise self.fail(f"{old} and {new} are not the names in the header; make the diff again", at=begin)
        added = "new file mode" in facts or (b"--- " in names and names[b"--- "] is None)
        deleted = "deleted file mode" in facts or (b"+++ " in names and names[b"+++ "] is None)
        if added + deleted + (kind is not ChangeKind.MODIFIED or "old mode" in facts) > 1:
            raise self.fail(f"{new} cannot be added, deleted, renamed at once; make the diff again", at=begin)
        if added:
            kind, old = ChangeKind.ADDED, None
        elif deleted:
            kind, new = ChangeKind.DELETED, None
        if names and (names.get(b"--- ", old), names.get(b"+++ ", new)) != (old, new):
            raise self.fail(f"`---` and `+++` do not name {new or old} as the header does; make it again", at=begin)
        return kind, old, new

    def _checked(self, path: str, at: int) -> str:
        try:
            return check_path(path)
        except ValueError as error:
            raise self.fail(str(error), at=at) from None
