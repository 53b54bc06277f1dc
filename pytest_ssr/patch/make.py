"""Old and new files in, a git diff out; the same bytes for the same files, always."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping

from pytest_ssr.patch.binary import encode
from pytest_ssr.patch.model import FileEntry, Patch, quoted

_CONTEXT = 3
_ABSENT = b"0" * 40
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def make_patch(changes: Mapping[str, tuple[FileEntry | None, FileEntry | None]]) -> Patch:
    """Return the diff from each first entry to each second one, sorted by path; None: no such file."""
    parts = [line for path in sorted(changes) for line in _file(path, *changes[path])]
    return Patch.parse(b"".join(parts))


def _file(path: str, old: FileEntry | None, new: FileEntry | None) -> Iterator[bytes]:
    if old == new:
        return
    binary = any(b"\0" in e.data[:8000] for e in (old, new) if e is not None)
    yield b"diff --git %s %s\n" % (quoted("a/", path), quoted("b/", path))
    if old is None and new is not None:
        yield b"new file mode %o\n" % new.mode
    elif new is None and old is not None:
        yield b"deleted file mode %o\n" % old.mode
    elif old is not None and new is not None and old.mode != new.mode:
        yield b"old mode %o\nnew mode %o\n" % (old.mode, new.mode)
    before, after = old.data if old else b"", new.data if new else b""
    if before == after and old is not None and new is not None:
        return
    size = 40 if binary else 12
    same_mode = b" %o" % old.mode if old is not None and new is not None and old.mode == new.mode else b""
    yield b"index %s..%s%s\n" % (_blob(old)[:size], _blob(new)[:size], same_mode)
    if binary:
        yield b"GIT binary patch\n"
        yield from encode(after)
        yield from encode(before)
    elif before != after:
        tab = b"\t" if " " in path and not quoted("", path).startswith(b'"') else b""
        yield b"--- " + (quoted("a/", path) + tab if old is not None else b"/dev/null") + b"\n"
        yield b"+++ " + (quoted("b/", path) + tab if new is not None else b"/dev/null") + b"\n"
        yield from _hunks(_lines(before), _lines(after))


def _blob(entry: FileEntry | None) -> bytes:
    if entry is None:
        return _ABSENT
    return hashlib.sha1(b"blob %d\0" % len(entry.data) + entry.data, usedforsecurity=False).hexdigest().encode()


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return [x + b"\n" for x in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    skip = max(head - _CONTEXT, 0)
    keep = max(tail - _CONTEXT, 0)
    old_part, new_part = old[skip : len(old) - keep], new[skip : len(new) - keep]
    matcher = difflib.SequenceMatcher(None, old_part, new_part, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        _, old_from, _, new_from, _ = group[0]
        _, _, old_to, _, new_to = group[-1]
        spans = (_span(old_from + skip, old_to - old_from), _span(new_from + skip, new_to - new_from))
        yield b"@@ -%s +%s @@\n" % spans
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (_line(b" ", x) for x in old_part[i1:i2])
                continue
            yield from (_line(b"-", x) for x in old_part[i1:i2])
            yield from (_line(b"+", x) for x in new_part[j1:j2])


def _span(start: int, count: int) -> bytes:
    if count == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if count else start, count)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + (line if line.endswith(b"\n") else line + _NO_NEWLINE)
