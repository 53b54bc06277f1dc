"""The bytes of a Python file in; its text as UTF-8 with a syntax tree, and the bytes of the changed file, out.

Trees count columns in UTF-8 bytes, so all splicing is done on UTF-8 and turned back into the file's own encoding.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

_NEWLINE = re.compile(rb"\r\n|\n|\r")
_WORD = re.compile(r"\w+")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Edit:
    """A span of UTF-8 bytes and what takes its place."""

    start: int
    """First byte."""
    end: int
    """One past the last byte."""
    text: bytes = b""
    """The replacement."""


@dataclass(frozen=True, slots=True, eq=False)
class PythonFile:
    """One file with its tree; nobody changes the tree."""

    path: str
    """Relative path."""
    data: bytes
    """The text in UTF-8, without a byte order mark."""
    encoding: str
    """What the file itself is encoded in."""
    tree: ast.Module
    """The syntax tree of `data`."""
    starts: tuple[int, ...]
    """The first byte of each line, and the end of the file."""

    def offset(self, line: int, column: int) -> int:
        """Return the byte at a 1-based line and a column of the tree."""
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
        """Return the bytes of a node, from its first decorator on."""
        first: ast.expr | ast.stmt | ast.alias = node
        if isinstance(node, DEFINITIONS) and node.decorator_list:
            first = node.decorator_list[0]
            at = self.data.rindex(b"@", 0, self.offset(first.lineno, first.col_offset))
            return at, self.offset(node.end_lineno or 0, node.end_col_offset or 0)
        start = self.offset(first.lineno, first.col_offset)
        return start, self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def line(self, number: int) -> bytes:
        """Return a 1-based line with its newline."""
        return self.data[self.starts[number - 1] : self.starts[number]]

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return len(self.starts) - 1

    @property
    def newline(self) -> bytes:
        """The first line's newline."""
        found = _NEWLINE.search(self.data)
        return found.group() if found else b"\n"

    def encoded(self) -> bytes:
        """Return the file's bytes in its own encoding."""
        return self.data.decode("utf-8").encode(self.encoding)

    def edited(self, edits: Iterable[Edit]) -> PythonFile | None:
        """Return the file after all edits, or None when that does not compile."""
        return from_text(self.path, splice(self.data, edits).decode("utf-8"), self.encoding)


@functools.lru_cache(maxsize=256)
def parse(path: str, data: bytes) -> PythonFile | None:
    """Return the file, or None when it is no Python source that comes back byte for byte."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        if text.encode(encoding) != data:
            return None
    except (SyntaxError, UnicodeError, LookupError):
        return None
    return from_text(path, text, encoding)


def from_text(path: str, text: str, encoding: str) -> PythonFile | None:
    """Return the file that has this text, or None when that does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, path)
            compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    data = text.encode("utf-8")
    starts = [0, *(m.end() for m in _NEWLINE.finditer(data))]
    if starts[-1] != len(data):
        starts.append(len(data))
    return PythonFile(path, data, encoding, tree, tuple(starts))


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Return the data with all edits made; deletions may overlap, and what is replaced inside a deletion is gone."""
    parts: list[bytes] = []
    at = 0
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if edit.start < at:
            if edit.end > at and not edit.text:
                at = edit.end
            continue
        parts += (data[at : edit.start], edit.text)
        at = edit.end
    return b"".join([*parts, data[at:]])


def words(data: bytes) -> list[str]:
    """Return every word of a text in UTF-8, in comments and strings too."""
    return _WORD.findall(data.decode("utf-8", "replace"))


def has_word(data: bytes, word: str) -> bool:
    """Tell whether a word occurs anywhere in a text in UTF-8."""
    encoded = word.encode("utf-8")
    return encoded in data and word in words(data)


def outside(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    """Return the data without some spans."""
    return splice(data, [Edit(a, b, b"\n") for a, b in spans])
