"""Make git diffs; the same files give the same bytes (for binary blocks: with the same zlib)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch.binary import blob_id, encode
from pytest_ssr.patch.changes import SYMLINK, FileEntry, split_lines
from pytest_ssr.patch.line_matching import Edit, edits, groups
from pytest_ssr.patch.model import Patch
from pytest_ssr.patch.paths import check_path, name_line, quote

_CONTEXT = 3
_SNIFF_BYTES = 8000
_ABSENT = b"0" * 40
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def make_patch(changes: Mapping[str, tuple[FileEntry | None, FileEntry | None]]) -> Patch:
    """Return the diff of the entries (old, new) of each path, sorted by path; None stands for an absent file.

    Raises ArtifactError for a path that a diff may not touch, and for a file that becomes a symlink or the reverse.
    """
    lines = [line for path in sorted(changes) for line in _file(path, *changes[path])]
    return Patch.parse(b"".join(lines))


def _file(path: str, old: FileEntry | None, new: FileEntry | None) -> Iterator[bytes]:
    if old == new:
        return
    try:
        check_path(path)
    except ValueError as error:
        raise ArtifactError(f"no diff can be made: {error}") from None
    if old is not None and new is not None and (old.mode == SYMLINK) != (new.mode == SYMLINK):
        raise ArtifactError(f"{path} changes between a file and a symlink; use another path for the new one")
    before = old.data if old else b""
    after = new.data if new else b""
    binary = b"\0" in before[:_SNIFF_BYTES] or b"\0" in after[:_SNIFF_BYTES]
    yield b"diff --git %s %s\n" % (quote("a/", path), quote("b/", path))
    yield from _modes(old, new)
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
        yield name_line(b"--- ", "a/", path if old is not None else None)
        yield name_line(b"+++ ", "b/", path if new is not None else None)
        yield from _hunks(split_lines(before), split_lines(after))


def _modes(old: FileEntry | None, new: FileEntry | None) -> Iterator[bytes]:
    if old is None and new is not None:
        yield b"new file mode %o\n" % new.mode
    elif new is None and old is not None:
        yield b"deleted file mode %o\n" % old.mode
    elif old is not None and new is not None and old.mode != new.mode:
        yield b"old mode %o\nnew mode %o\n" % (old.mode, new.mode)


def _blob(entry: FileEntry | None) -> bytes:
    return _ABSENT if entry is None else blob_id(entry.data, size=40)


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    for group in groups(edits(old, new), _CONTEXT):
        first, last = group[0], group[-1]
        lead = min(_CONTEXT, first.old_from)
        end = min(last.old_to + _CONTEXT, len(old))
        old_from, new_from = first.old_from - lead, first.new_from - lead
        new_to = last.new_to + end - last.old_to
        yield b"@@ -%s +%s @@\n" % (_span(old_from, end - old_from), _span(new_from, new_to - new_from))
        at = old_from
        for edit in [*group, Edit(end, end, new_to, new_to)]:
            yield from (_line(b" ", x) for x in old[at : edit.old_from])
            yield from (_line(b"-", x) for x in old[edit.old_from : edit.old_to])
            yield from (_line(b"+", x) for x in new[edit.new_from : edit.new_to])
            at = edit.old_to


def _span(start: int, count: int) -> bytes:
    if count == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if count else start, count)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + (line if line.endswith(b"\n") else line + _NO_NEWLINE)
