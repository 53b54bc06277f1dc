"""Search a sandbox for copies of files: as source, compiled, and in archives.

This program is passed as a string to an interpreter of any version since 3.6, and needs only the standard library. It
reads a JSON file with the folders to search, the files' names and contents, and passages that only the originals
contain. It prints JSON: for each copy its path, the index of a passage (-1 if it is compiled), the member of the
archive, and whether it belongs to the standard library of this interpreter. The total size and time for archives are
limited; a larger archive with a copy would have to be made on purpose.
"""

import importlib.util
import json
import marshal
import os
import re
import sys
import tarfile
import time
import types
import warnings
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Fingerprint = tuple[str, bytes, tuple[str, ...], tuple[str, ...], tuple[str, ...]]

ZIPS = (".whl", ".egg", ".zip", ".pyz")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
LONG, MIN_SHARE, MIN_NAMES = 48, 0.5, 8
# Of a compiled file, in bytes (PEP 552).
HEADER = 16 if sys.version_info >= (3, 7) else 12
# Where the modules are that this interpreter needs itself.
LIBRARY = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
INSTALLED = ("site-packages", "dist-packages")


class Compiled:
    """The compiled code of one file, with the bug and without."""

    def __init__(self, original: bytes, buggy: bytes) -> None:
        self.all: set[Fingerprint] = set()
        self.identifiers: set[str] = set()
        for level in (0, 1, 2):
            self.all.update(map(fingerprint, codes(compiled(original, level))))
        self.wanted = self.all - {fingerprint(c) for level in (0, 1, 2) for c in codes(compiled(buggy, level))}
        for code in codes(compiled(original, 2)):
            self.identifiers.update((code.co_name, *code.co_names, *code.co_varnames))
        self.identifiers.discard("<module>")

    def is_in(self, data: bytes) -> bool:
        """Return whether a compiled file contains original code of the fix; short functions may be equal by chance."""
        if data[:4] != importlib.util.MAGIC_NUMBER:
            # Compiled by another Python version: with every name of the file in it, it was compiled from the file.
            return len(self.identifiers) >= MIN_NAMES and all(w.encode() in data for w in self.identifiers)
        try:
            fingerprints = {fingerprint(code) for code in codes(marshal.loads(data[HEADER:]))}
        except (ValueError, EOFError, TypeError):
            return False
        matching = self.wanted & fingerprints
        share = len(self.all & fingerprints) / max(1, len(fingerprints))
        return any(len(p[1]) > LONG for p in matching) or (bool(matching) and share >= MIN_SHARE)


def compiled(text: bytes, level: int) -> "types.CodeType | None":
    """Return the code of a file, or None if it is not valid in this Python version."""
    try:
        return compile(text, "", "exec", dont_inherit=True, optimize=level)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def codes(top: "types.CodeType | None") -> "Iterator[types.CodeType]":
    """Yield a code object and all code objects nested in it."""
    waiting: list[object] = [top]
    while waiting:
        code = waiting.pop()
        if isinstance(code, types.CodeType):
            yield code
            waiting.extend(code.co_consts)


def fingerprint(code: types.CodeType) -> "Fingerprint":
    """Return the parts of a code object that do not depend on the file's path and the code around the function."""
    consts = tuple(plain(c) for c in code.co_consts if not isinstance(c, types.CodeType))
    return code.co_name, code.co_code, consts, code.co_names, code.co_varnames


def plain(value: object) -> str:
    """Return a constant as a string; equal constants give equal strings."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def is_of_library(path: str) -> bool:
    """Return whether a file belongs to this interpreter's standard library."""
    path = os.path.realpath(path)
    return path.startswith(LIBRARY) and path[len(LIBRARY) :].partition(os.sep)[0] not in INSTALLED


class Search:
    """One search of a sandbox for copies."""

    def __init__(self, query: "dict[str, Any]") -> None:
        self.matches: dict[str, tuple[str, int, str, bool]] = {}
        self.query = query
        self.passages = [text.encode("latin-1") for text in query["passages"]]
        self.names = {file["name"] for file in query["files"]}
        self.compiled: dict[str, list[Compiled]] = {}
        for file in query["files"]:
            original, buggy = (file[kind].encode("latin-1") for kind in ("original", "buggy"))
            if file["name"].endswith(".py"):
                self.compiled.setdefault(file["name"][:-3], []).append(Compiled(original, buggy))
        self.remaining_bytes, self.deadline = query["archives_bytes"], time.monotonic() + query["archives_s"]

    def walk(self) -> None:
        """Search all roots."""
        for root in self.query["roots"]:
            if os.path.isfile(root):
                self.check(root)
            for folder, inner, files in os.walk(root):
                inner[:] = sorted(n for n in inner if os.path.join(folder, n) not in self.query["left_out"])
                for name in sorted(files):
                    if self.matches_name(name) or name.endswith(ZIPS + TARS):
                        self.check(os.path.join(folder, name))

    def matches_name(self, name: str) -> bool:
        """Return whether a file has the name of a searched file or of its compiled form."""
        return name in self.names or (name.endswith((".pyc", ".pyo")) and name.partition(".")[0] in self.compiled)

    def check(self, path: str) -> None:
        """Check one file."""
        name = os.path.basename(path)
        try:
            if os.path.islink(path):
                return
            size = os.path.getsize(path)
            if self.matches_name(name) and size <= self.query["most_bytes"]:
                with open(path, "rb") as file:
                    self.compare(path, name, file.read(), "")
            elif name.endswith(ZIPS + TARS) and size <= self.remaining_bytes and time.monotonic() < self.deadline:
                for member, data in self.members(path):
                    self.compare(path, os.path.basename(member), data, member)
        except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, tarfile.TarError):
            return
        except Exception as error:  # compression modules raise their own errors: zlib.error, lzma.LZMAError
            if type(error).__module__ not in ("zlib", "lzma", "_lzma"):
                raise

    def members(self, path: str) -> "Iterator[tuple[str, bytes]]":
        """Yield (name, content) of an archive's members that have the name of a searched file."""
        if path.endswith(ZIPS):
            with zipfile.ZipFile(path) as archive:
                for item in archive.infolist():
                    if self.matches_name(os.path.basename(item.filename)) and self.takes(item.file_size):
                        yield item.filename, archive.read(item)
            return
        with tarfile.open(path) as packed:
            for part in packed:
                # Every member has to be unpacked to reach the next one.
                self.remaining_bytes -= part.size
                if self.remaining_bytes < 0 or time.monotonic() > self.deadline:
                    return
                if part.isfile() and self.matches_name(os.path.basename(part.name)) and self.takes(part.size):
                    stream = packed.extractfile(part)
                    if stream is not None:
                        yield part.name, stream.read()

    def takes(self, size: int) -> bool:
        """Return whether a member is small enough to be read."""
        return size <= int(self.query["most_bytes"])

    def compare(self, path: str, name: str, data: bytes, member: str) -> None:
        """Record a path if its content is a copy."""
        if name not in self.names:
            if any(code.is_in(data) for code in self.compiled[name.partition(".")[0]]):
                self.matches.setdefault(path, (path, -1, member, is_of_library(path)))
            return
        content = b"\n".join(filter(None, (line.strip() for line in re.split(rb"\r?\n", data))))
        for number, passage in enumerate(self.passages):
            if passage in content:
                self.matches.setdefault(path, (path, number, member, is_of_library(path)))
                return


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with open(sys.argv[1]) as query_file:
        search = Search(json.load(query_file))
    search.walk()
    print(json.dumps(list(search.matches.values())[:20]))
