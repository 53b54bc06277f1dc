"""Read the diffs of dataset rows, of which the tree is not known yet.

Their hunks are right, but they may have no `diff --git` lines, as SWE-smith's, or other text around the files. What
cannot be read without the tree, such as wrong line numbers, is an error: a row states what is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.diffs.binaries import without_empty_binaries
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import Patch

_HUNK = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_EXTENDED = re.compile(
    rb"(?:old|new|deleted file|new file) mode |(?:rename|copy) (?:from|to) |(?:dis)?similarity index |index |"
    rb"--- |\+\+\+ |GIT binary patch"
)
_DEV_NULL = b"/dev/null"


def read_row_diff(data: bytes) -> Patch:
    """Return the diff of a row; raises ArtifactError for one that cannot be read.

    Binary files without their content are left out. Of names without `diff --git`, the first component is removed.
    """
    data, _ = without_empty_binaries(data)
    try:
        return Patch.parse(data)
    except ArtifactError:
        lines = [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]
        try:
            rewritten = b"".join(_files(lines))
        except ValueError:
            rewritten = b""
        if not rewritten:
            raise
        return Patch.parse(rewritten)


def _files(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines of a git diff, without text around its files; raises ValueError for a malformed diff."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"diff --git "):
            end = at + 1
            while end < len(lines) and _EXTENDED.match(lines[end]):
                end += 1
            yield from lines[at:end]
            at = end
        elif line.startswith(b"--- ") and lines[at + 1 : at + 2] and lines[at + 1].startswith(b"+++ "):
            yield from _header(line, lines[at + 1])
            at += 2
        elif header := _HUNK.match(line):
            end = _hunk_end(lines, at + 1, int(header[1] or 1), int(header[2] or 1))
            yield from lines[at:end]
            at = end
        elif line.startswith((b"literal ", b"delta ")):
            end = lines.index(b"\n", at) + 1
            yield from lines[at:end]
            at = end
        else:
            at += 1


def _header(old: bytes, new: bytes) -> Iterator[bytes]:
    names = [line[4:].split(b"\t")[0].strip() for line in (old, new)]
    paths = {name.partition(b"/")[2] for name in names if name != _DEV_NULL}
    if len(paths) != 1 or not (path := paths.pop()):
        raise ValueError(f"{old!r} and {new!r} do not name one file")
    yield b"diff --git a/%s b/%s\n" % (path, path)
    if _DEV_NULL in names:
        yield b"%s file mode 100644\n" % (b"new" if names[0] == _DEV_NULL else b"deleted")
    yield b"--- " + (_DEV_NULL if names[0] == _DEV_NULL else b"a/" + path) + b"\n"
    yield b"+++ " + (_DEV_NULL if names[1] == _DEV_NULL else b"b/" + path) + b"\n"


def _hunk_end(lines: list[bytes], index: int, old: int, new: int) -> int:
    """Return the index after a hunk with this many old and new lines; raises ValueError for another line in it."""
    while index < len(lines) and (old > 0 or new > 0 or lines[index].startswith(b"\\")):
        sign = lines[index][:1]
        if sign not in (b" ", b"-", b"+", b"\\", b"\n"):
            raise ValueError(f"{lines[index]!r} is not a line of a hunk")
        old -= sign in (b" ", b"-", b"\n")
        new -= sign in (b" ", b"+", b"\n")
        index += 1
    return index
