"""Colour diffs and code by Pygments, with classes instead of styles, which the content policy forbids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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

MOST_LINES = 2_000
"""More of a diff is left out of a page; the file itself has everything."""
_MOST_CHARACTERS = 200_000
_QUOTES = '"""'
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


def highlighted_diff(text: str) -> HighlightedDiff:
    """Return a unified diff as lines with syntax colours."""
    lines = visible(text[:_MOST_CHARACTERS]).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    total = text.count("\n") + bool(text) - text.endswith("\n")
    kept = lines[:MOST_LINES]
    return HighlightedDiff(tuple(_diff_lines(kept)), max(0, total - len(kept)))


def highlighted_code(text: str, name: str) -> Markup:
    """Return code with syntax colours; name: of its file, which names the language."""
    return _coloured(visible(text[:_MOST_CHARACTERS]), _lexer(name))


def coloured_lines(text: str, name: str) -> list[Markup]:
    """Return the lines of a part of a file with syntax colours; name: of the file."""
    return _coloured_lines(visible(text).split("\n"), _lexer(name))


def _diff_lines(lines: Sequence[str]) -> Iterator[DiffLine]:
    lexer: Lexer = TextLexer()
    position = 0
    while position < len(lines):
        line = lines[position]
        match = _HUNK.match(line)
        if match is None:
            if line.startswith(("+++ b/", "--- a/")):
                lexer = _lexer(line[6:])
            yield DiffLine(LineKind.FILE, None, None, Markup.escape(line))
            position += 1
            continue
        yield DiffLine(LineKind.HUNK, None, None, Markup.escape(line))
        end = position + 1
        while end < len(lines) and lines[end][:1] in (" ", "+", "-", "\\", ""):
            end += 1
        yield from _hunk(lines[position + 1 : end], lexer, int(match[1]), int(match[2]))
        position = end


def _hunk(lines: Sequence[str], lexer: Lexer, old: int, new: int) -> Iterator[DiffLine]:
    """Yield the lines of a hunk; each side is coloured as a whole, because strings may span lines."""
    before = iter(_coloured_lines([line[1:] for line in lines if line[:1] not in ("+", "\\")], lexer))
    after = iter(_coloured_lines([line[1:] for line in lines if line[:1] not in ("-", "\\")], lexer))
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


def _coloured_lines(lines: Sequence[str], lexer: Lexer) -> list[Markup]:
    before, after = _cut_string(lines)
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
