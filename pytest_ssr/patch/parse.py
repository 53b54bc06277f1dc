"""Bytes of a git diff in, file changes out; strict, because a diff that is read wrongly proves the wrong thing."""

from __future__ import annotations

import re

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.model import ChangeKind, FileChange, Hunk

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*?)\n?\Z", re.DOTALL)
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_MODES = (0o100644, 0o100755, 0o120000)


def parse_files(data: bytes) -> tuple[FileChange, ...]:
    """Return the changes of a diff; text before the first `diff --git` is passed over."""
    lines = data.split(b"\n")
    lines = [x + b"\n" for x in lines[:-1]] + ([lines[-1] + b"\n"] if lines[-1] else [])
    start = next((i for i, x in enumerate(lines) if x.startswith(b"diff ")), None)
    if start is None:
        if data.strip():
            raise ArtifactError("line 1: no `diff --git` line; make the diff with git diff")
        return ()
    reader = _Reader(lines, start)
    files = []
    while not reader.at_end:
        files.append(reader.file())
    seen: set[str] = set()
    for change in files:
        names = {change.new_path} if change.kind is ChangeKind.COPIED else {change.old_path, change.new_path}
        repeated = seen & names - {None}
        if repeated:
            raise ArtifactError(f"{repeated.pop()} is changed twice; make one diff of both changes")
        seen |= {n for n in names if n is not None}
    return tuple(files)


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

    def fail(self, why: str, *, at: int | None = None) -> ArtifactError:
        return ArtifactError(f"line {(self.at if at is None else at) + 1}: {why}")

    def file(self) -> FileChange:
        begin = self.at
        first = self.take()
        if not first.startswith(b"diff --git "):
            if first.startswith((b"diff --cc", b"diff --combined")):
                raise self.fail("a combined diff of a merge; diff against one parent", at=begin)
            raise self.fail("expected `diff --git`; make the diff with git diff", at=begin)
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
        if hunks and b"--- " not in names:
            raise self.fail("hunks without `---` and `+++` lines", at=begin)
        return self._change(begin, first, facts, names, header, tuple(hunks), ((), ()))

    def _header_line(self, facts: dict[str, str | int], names: dict[bytes, str | None]) -> None:
        at = self.at
        line = self.take().rstrip(b"\n")
        for word in (b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode "):
            if line.startswith(word):
                mode = int(line[len(word) :], 8) if line[len(word) :].isdigit() else 0
                if mode not in _MODES:
                    raise self.fail("only regular files, executable files and symlinks have a mode here", at=at)
                facts[word.decode().strip()] = mode
                return
        for word in (b"rename from ", b"rename to ", b"copy from ", b"copy to "):
            if line.startswith(word):
                facts[word.decode().strip()] = self._checked(_unquoted(line[len(word) :]), at)
                return
        if line.startswith((b"--- ", b"+++ ")):
            name = _unquoted(line[4:].removesuffix(b"\t"))
            prefix = "a/" if line.startswith(b"---") else "b/"
            if name == "/dev/null":
                names[line[:4]] = None
            elif name.startswith(prefix):
                names[line[:4]] = self._checked(name[2:], at)
            else:
                raise self.fail(f"{name!r} does not begin with {prefix}; make the diff with git diff", at=at)
        elif line.startswith((b"Binary files ", b"Files ")):
            raise self.fail("a binary file without its content; make the diff with git diff --binary", at=at)
        elif not line.startswith((b"index ", b"similarity index ", b"dissimilarity index ")):
            raise self.fail(f"{line[:60].decode(errors='replace')!r} is no part of a git diff", at=at)

    def _hunk(self) -> Hunk:
        at = self.at
        match = _HUNK.match(self.take())
        if match is None:
            raise self.fail("the hunk's header is damaged", at=at)
        old_start, new_start = int(match[1]), int(match[3])
        old_count = 1 if match[2] is None else int(match[2])
        new_count = 1 if match[4] is None else int(match[4])
        old, new = old_count, new_count
        lines: list[bytes] = []
        while old > 0 or new > 0 or self.line.startswith(b"\\"):
            sign = self.line[:1]
            if sign not in (b" ", b"+", b"-", b"\\") or self.at_end:
                raise self.fail("the hunk is shorter than its header says")
            if sign == b"\\" and not lines:
                raise self.fail("a hunk cannot begin with a remark")
            old -= sign in (b" ", b"-")
            new -= sign in (b" ", b"+")
            lines.append(self.take())
        if old or new:
            raise self.fail("the hunk's lines are not those its header counts", at=at)
        if self.line[:1] in (b" ", b"+", b"-"):
            raise self.fail("the hunk is longer than its header says")
        return Hunk(old_start, old_count, new_start, new_count, match[5], tuple(lines))

    def _block(self) -> tuple[bytes, ...]:
        at = self.at
        if not self.line.startswith((b"literal ", b"delta ")):
            raise self.fail("a binary patch needs `literal` or `delta`")
        lines = [self.take()]
        while not self.at_end:
            lines.append(self.take())
            if lines[-1] == b"\n":
                return tuple(lines)
        raise self.fail("the binary patch has no end", at=at)

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
        index = next((x.split() for x in header if x.startswith(b"index ")), [])
        plain = int(index[2], 8) if len(index) == 3 else None
        old_mode = facts.get("old mode", facts.get("deleted file mode", plain))
        new_mode = facts.get("new mode", facts.get("new file mode", plain))
        if kind is ChangeKind.MODIFIED and not hunks and not blocks[0]:
            if "new mode" not in facts:
                raise self.fail(f"nothing is said about {new}; the diff is cut off", at=begin)
            kind = ChangeKind.MODE
        return FileChange(
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

    def _names(
        self, begin: int, first: bytes, facts: dict[str, str | int], names: dict[bytes, str | None]
    ) -> tuple[ChangeKind, str | None, str | None]:
        for word, kind in (("rename", ChangeKind.RENAMED), ("copy", ChangeKind.COPIED)):
            if f"{word} from" in facts:
                return kind, str(facts[f"{word} from"]), str(facts.get(f"{word} to", ""))
        both = _header_names(first[len(b"diff --git ") :].rstrip(b"\n"))
        old, new = names.get(b"--- ", both), names.get(b"+++ ", both)
        path = old if old is not None else new
        if path is None:
            raise self.fail("the two names of the file cannot be told apart", at=begin)
        self._checked(path, begin)
        if "new file mode" in facts or (b"--- " in names and old is None):
            return ChangeKind.ADDED, None, new if new is not None else path
        if "deleted file mode" in facts or (b"+++ " in names and new is None):
            return ChangeKind.DELETED, path, None
        if old != new:
            raise self.fail(f"{old} becomes {new} without `rename from`; make the diff with git diff", at=begin)
        return ChangeKind.MODIFIED, path, path

    def _checked(self, path: str, at: int) -> str:
        parts = path.split("/")
        if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(parts):
            raise self.fail(f"{path!r} is not a plain relative path", at=at)
        if any(p.lower() == ".git" for p in parts):
            raise self.fail(f"{path!r} lies inside .git", at=at)
        return path


def _header_names(text: bytes) -> str | None:
    """Return the one name that both sides of `a/NAME b/NAME` have, or None when they differ."""
    if text.startswith(b'"'):
        end = re.match(rb'"(?:[^"\\]|\\.)*"', text)
        if end is None:
            return None
        old, new = _unquoted(end[0]), _unquoted(text[end.end() + 1 :])
        return old[2:] if old[2:] == new[2:] else None
    half = (len(text) - 1) // 2
    old_raw, new_raw = text[:half], text[half + 1 :]
    if text[half : half + 1] == b" " and old_raw[2:] == new_raw[2:] and old_raw[:2] == b"a/":
        return old_raw[2:].decode("utf-8", "surrogateescape")
    return None


def _unquoted(name: bytes) -> str:
    if not name.startswith(b'"'):
        return name.decode("utf-8", "surrogateescape")
    body = name[1:-1].decode("latin-1")
    out = bytearray()
    for match in re.finditer(r"\\([0-7]{3})|\\(.)|(.)", body, re.DOTALL):
        if match[1]:
            out.append(int(match[1], 8) & 255)
        elif match[2]:
            out.append(_ESCAPES.get(match[2], ord(match[2])))
        else:
            out += match[3].encode("latin-1")
    return out.decode("utf-8", "surrogateescape")
