"""Colour diffs and code by Pygments, with classes instead of styles, which the content policy forbids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from harness.service.dashboard.visible import visible
from pytest_ssr.source.syntax_tree import parse

MOST_LINES = 2_000
"""More of a diff is left out of a page; the file itself has everything."""
_MOST_CHARACTERS = 200_000
_QUOTES = '"""'
_STRING = re.compile(rb"[a-zA-Z]*(\"\"\"|'''|\"|')")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="c-")


class LineKind(StrEnum):
    """What a line of a diff is."""

    FILE = "file"
    HUNK = "hunk"
    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff, ready for a page."""

    kind: LineKind
    old: int | None
    """Its number before the change."""
    new: int | None
    code: Markup


@dataclass(frozen=True, slots=True)
class HighlightedDiff:
    """A diff, ready for a page."""

    lines: tuple[DiffLine, ...]
    left_out: int
    """Number of lines at the end that are not shown."""


def highlighted_diff(text: str, *, opened: Callable[[str], Mapping[int, str]] | None = None) -> HighlightedDiff:
    """Return a unified diff as lines with syntax colours.

    opened: returns `lines_in_strings` of the original file with a path; without it, whether a hunk begins within a
    string is guessed.
    """
    lines = visible(text[:_MOST_CHARACTERS]).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    total = text.count("\n") + bool(text) - text.endswith("\n")
    kept = lines[:MOST_LINES]
    return HighlightedDiff(tuple(_diff_lines(kept, opened)), max(0, total - len(kept)))


def highlighted_code(text: str, name: str) -> Markup:
    """Return code with syntax colours; name: of its file, which names the language."""
    return _coloured(visible(text[:_MOST_CHARACTERS]), _lexer(name))


def coloured_lines(text: str, name: str) -> list[Markup]:
    """Return the lines of a part of a file with syntax colours; name: of the file."""
    return _coloured_lines(visible(text).split("\n"), _lexer(name))


def lines_in_strings(path: str, source: str) -> dict[int, str]:
    """Return the numbers of the lines of a Python file that begin within a string, with the quotes of the string."""
    parsed = parse(path, source.encode())
    found: dict[int, str] = {}
    nodes = [parsed.root] if parsed is not None else []
    while nodes:
        node = nodes.pop()
        first, last = node.start_point.row, node.end_point.row
        if first == last:
            continue
        quotes = _STRING.match(parsed.text(node)) if parsed is not None and node.type == "string" else None
        if quotes is None:
            nodes += node.children
        else:
            found.update(dict.fromkeys(range(first + 2, last + 2), quotes[1].decode()))
    return found


def _diff_lines(lines: Sequence[str], opened: Callable[[str], Mapping[int, str]] | None) -> Iterator[DiffLine]:
    lexer: Lexer = TextLexer()
    begins: Mapping[int, str] | None = None
    position = 0
    while position < len(lines):
        line = lines[position]
        match = _HUNK.match(line)
        if match is None:
            if line.startswith(("+++ b/", "--- a/")):
                lexer = _lexer(line[6:])
            if line.startswith("--- "):
                begins = opened(line[6:]) if opened is not None else None
            yield DiffLine(LineKind.FILE, None, None, Markup.escape(line))
            position += 1
            continue
        yield DiffLine(LineKind.HUNK, None, None, Markup.escape(line))
        end = position + 1
        while end < len(lines) and lines[end][:1] in (" ", "+", "-", "\\", ""):
            end += 1
        quotes = None if begins is None else begins.get(int(match[1]), "")
        yield from _hunk(lines[position + 1 : end], lexer, (int(match[1]), int(match[2])), quotes)
        position = end


def _hunk(lines: Sequence[str], lexer: Lexer, numbers: tuple[int, int], quotes: str | None) -> Iterator[DiffLine]:
    """Yield the lines of a hunk; each side is coloured as a whole, because strings may span lines.

    quotes: of the string within which the hunk begins; empty if it begins outside of one, None if that is not known.
    """
    old, new = numbers
    before = iter(_coloured_lines([line[1:] for line in lines if line[:1] not in ("+", "\\")], lexer, quotes))
    after = iter(_coloured_lines([line[1:] for line in lines if line[:1] not in ("-", "\\")], lexer, quotes))
    for line in lines:
        if line.startswith("\\"):
            yield DiffLine(LineKind.NOTE, None, None, Markup.escape(line))
        elif line.startswith("+"):
            yield DiffLine(LineKind.ADDED, None, new, next(after))
            new += 1
        elif line.startswith("-"):
            yield DiffLine(LineKind.REMOVED, old, None, next(before))
            old += 1
        else:
            next(before)
            yield DiffLine(LineKind.SAME, old, new, next(after))
            old, new = old + 1, new + 1


def _coloured_lines(lines: Sequence[str], lexer: Lexer, quotes: str | None = None) -> list[Markup]:
    before, after = _cut_string(lines) if quotes is None else _closed_string(lines, quotes)
    # The formatter ends the last line, too, unless it is empty.
    text = "\n".join((*before, *lines, *after))
    coloured = [
        Markup(line) for line in _coloured(text, lexer).removesuffix("" if text.endswith("\n") else "\n").split("\n")
    ]
    coloured = coloured[len(before) : len(coloured) - len(after)]
    if len(coloured) == len(lines):
        return coloured
    # A lexer may end lines at other characters, too.
    return [Markup.escape(line) for line in lines]


def _cut_string(lines: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the lines to add before and after a hunk that begins or ends within a docstring."""
    quotes = [line for line in lines for _ in range(line.count(_QUOTES))]
    if len(quotes) % 2 == 0:
        return (), ()
    # A line of quotes alone ends a docstring more often than it begins one.
    return ((_QUOTES,), ()) if quotes[0].strip() == _QUOTES else ((), (_QUOTES,))


def _closed_string(lines: Sequence[str], quotes: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the same for a hunk that begins within a string with these quotes; empty: outside of strings."""
    before = (quotes,) if quotes else ()
    count = sum(line.count(_QUOTES) for line in (*before, *lines))
    return before, (_QUOTES,) if count % 2 else ()


def _coloured(text: str, lexer: Lexer) -> Markup:
    return Markup(highlight(text, lexer, _FORMATTER))


def _lexer(name: str) -> Lexer:
    return _lexer_of(name.rpartition("/")[2])


@lru_cache(maxsize=256)
def _lexer_of(name: str) -> Lexer:
    options: dict[str, Any] = {"stripnl": False, "ensurenl": False}
    try:
        return get_lexer_for_filename(name, **options)
    except ClassNotFound:
        return TextLexer(**options)
