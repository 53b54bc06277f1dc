"""Convert plain unified diffs, as SWE-smith and many models write them, into git diffs.

They have no `diff --git` lines. `git apply` and `patch`, which the harnesses of the SWE-bench family use, accept both
forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HUNK = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_DEV_NULL = b"/dev/null"


def as_git_diff(data: bytes) -> bytes:
    """Return a plain unified diff in git's form, ended with a newline; other input is not converted.

    The first component of each path (`-p1`) and anything after a tab (a timestamp) are stripped.
    """
    if data and not data.endswith(b"\n"):
        data += b"\n"
    if data.startswith(b"diff --git ") or b"\ndiff --git " in data:
        return data
    try:
        return b"".join(_files(data.splitlines(keepends=True))) or data
    except ValueError:
        return data


def _files(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines of a git diff; raises ValueError for a malformed diff."""
    index = 0
    while index < len(lines):
        if not (
            lines[index].startswith(b"--- ") and lines[index + 1 : index + 2] and lines[index + 1].startswith(b"+++ ")
        ):
            index += 1
            continue
        yield from _header(lines[index], lines[index + 1])
        index += 2
        while index < len(lines) and (header := _HUNK.match(lines[index])):
            end = _hunk_end(lines, index + 1, int(header[1] or 1), int(header[2] or 1))
            yield from lines[index:end]
            index = end


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
