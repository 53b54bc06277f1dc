"""Find the files of a tree that a diff may be about, so that only these are copied.

Every reading of every line that can name a file counts: a file more does not change what a diff does, one less may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import PurePosixPath

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry
from pytest_ssr.patch.changes import SYMLINK
from pytest_ssr.patch.paths import unquote

_HEADER = re.compile(
    rb"^(?:\xef\xbb\xbf)?[- \tX]*"
    rb"(?:diff |--- |\+\+\+ |\*\*\* |Index:|(?:rename|copy) (?:from|to) )[ \t]*([^\n\t]*)",
    re.MULTILINE,
)
_ATTRIBUTES = ".gitattributes"
_MOST_SPACES = 40
"""Of a line that names files; a longer one is read as a whole and by its words."""
_MOST_NAMES = 300_000
_STRIPPED = 2
"""Leading components that are removed from a name, at most: git removes one or none, GNU patch one."""


def has_names(data: bytes) -> bool:
    """Return whether a line of a diff names a file."""
    return _HEADER.search(data) is not None


def names_of(data: bytes) -> list[str]:
    """Return every path that a line of a diff may mean, without its leading components as well.

    Raises ArtifactError if they are too many to look up.
    """
    readings = (path for line in dict.fromkeys(_HEADER.findall(data)) for path in _paths(line))
    names = list(islice(readings, _MOST_NAMES + 1))
    if len(names) > _MOST_NAMES:
        raise ArtifactError(f"it may name more than {_MOST_NAMES} files")
    return list(dict.fromkeys(names))


def named_files(data: bytes, read: Callable[[str], FileEntry | None]) -> dict[str, FileEntry]:
    """Return the files of a tree that a diff may read or replace, and the attributes with which git converts them.

    read: returns a file of the tree, or None if the file does not exist.
    """
    files: dict[str, FileEntry] = {}
    seen: set[str] = set()

    def add(path: str, *, is_above: bool = False) -> None:
        if path in seen:
            return
        seen.add(path)
        entry = read(path)
        if entry is not None:
            # No command may write below a symlink, and a file in its place keeps it from that.
            files[path] = FileEntry(b"") if is_above and entry.mode == SYMLINK else entry

    add(_ATTRIBUTES)
    for name in names_of(data):
        add(name)
        for folder in PurePosixPath(name).parents[:-1]:
            add(str(folder), is_above=True)
            add(f"{folder}/{_ATTRIBUTES}")
    return {p: e for p, e in files.items() if not any(str(f) in files for f in PurePosixPath(p).parents)}


def may_write_below_symlink(data: bytes) -> bool:
    """Return whether a diff makes a symlink, and names a path below another one that it names."""
    if b" 120000" not in data:
        return False
    names = set(names_of(data))
    return any(str(folder) in names for name in names for folder in PurePosixPath(name).parents[:-1])


def _paths(line: bytes) -> Iterator[str]:
    for text in _readings(line.rstrip(b"\r ")):
        try:
            name = unquote(text)
        except ValueError:
            continue
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name or len(parts) > 500:
            continue
        for stripped in range(min(_STRIPPED + 1, len(parts))):
            yield "/".join(parts[stripped:])


def _readings(line: bytes) -> Iterator[bytes]:
    """Yield every beginning and end of a line at a space: names may hold spaces, and times may follow them."""
    yield line
    words = line.split(b" ")
    if len(words) > _MOST_SPACES:
        yield from words
        return
    for at in range(1, len(words)):
        yield b" ".join(words[:at])
        yield b" ".join(words[at:])
    if len(words) > 2:
        # Names between other words, as in `diff -ruN old new`.
        yield from words[1:-1]
