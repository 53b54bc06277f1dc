"""List the regions of a function that a model may rewrite: a few consecutive statements, as whole lines."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ssr.source.syntax_tree import ParsedSource, Scope

MOST_STATEMENTS = 3
"""Most statements of a region; the first line of a compound statement, such as `if x:`, counts as one."""
MOST_LINES = 6
"""Most lines of a region, and of what is written in its place."""
LONGEST_CHARACTERS = 600
"""Most characters of a region, and of what is written in its place."""
_NOT_CODE = frozenset((tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER))
_INDENTED = "if 1:\n"


@dataclass(frozen=True, slots=True)
class Region:
    """Consecutive lines of a function, and those around them. Each text is empty or ends with a line break."""

    before: str
    lines: str
    after: str
    statements: int
    """Number of statements of the region."""

    @property
    def first(self) -> int:
        """The number of its first line in the function, from 1."""
        return self.before.count("\n") + 1

    @property
    def last(self) -> int:
        """The number of its last line in the function, from 1."""
        return self.before.count("\n") + self.lines.count("\n")

    def with_lines(self, lines: str) -> str:
        """Return the function with other lines in this place."""
        return f"{self.before}{lines}{self.after}"

    def original_lines(self, original: str) -> str | None:
        """Return the lines that make another version of the function of this one; None if it differs elsewhere, too."""
        end = len(original) - len(self.after)
        is_around = original.startswith(self.before) and original.endswith(self.after) and end >= len(self.before)
        return original[len(self.before) : end] if is_around else None


def function_text(source: ParsedSource, scope: Scope) -> str | None:
    """Return a function as whole lines, or None if it is not UTF-8 or has line breaks of another kind."""
    data = source.data[scope.start : source.line_end(scope.end)]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in text:
        return None
    return text if text.endswith("\n") else f"{text}\n"


def is_indented(function: str) -> bool:
    """Return whether a function is part of a class, a function or another block. A form feed is no indentation."""
    return function.lstrip("\f")[:1].isspace()


def fits(lines: str) -> bool:
    """Return whether lines are not too many and not too long for a region."""
    return lines.count("\n") <= MOST_LINES and len(lines) <= LONGEST_CHARACTERS


def whole_lines(text: str) -> list[str]:
    """Return lines with their line breaks. Unlike `splitlines`, it knows no other characters that break lines."""
    return [f"{line}\n" for line in text.split("\n")[:-1]]


def regions_of(function: str) -> list[Region]:
    """Return all regions of a function, in order. A docstring is in none.

    function: whole lines, with their indentation. No region is returned for code that cannot be divided into tokens.
    """
    lines = whole_lines(function)
    found = []
    for run in _runs_of_statements(function):
        for index, (first, _) in enumerate(run):
            for number, (_, last) in enumerate(run[index : index + MOST_STATEMENTS], 1):
                text = "".join(lines[first:last])
                if fits(text):
                    found.append(Region("".join(lines[:first]), text, "".join(lines[last:]), number))
    return found


def regions_with_change(function: str, other: str) -> list[Region]:
    """Return the regions of a function outside of which another version of it is the same."""
    return [
        region for region in regions_of(function) if (lines := region.original_lines(other)) is not None and fits(lines)
    ]


def smallest_of(regions: Sequence[Region]) -> list[Region]:
    """Return those of some regions, at least one, that have the fewest statements."""
    fewest = min(region.statements for region in regions)
    return [region for region in regions if region.statements == fewest]


def _runs_of_statements(function: str) -> list[list[tuple[int, int]]]:
    """Return the lines of each statement, as (first, end) from 0, in runs that docstrings divide."""
    is_inner = is_indented(function)
    text = f"{_INDENTED}{function}" if is_inner else function
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    runs: list[list[tuple[int, int]]] = [[]]
    statement: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type in _NOT_CODE:
            continue
        statement.append(token)
        if token.type == tokenize.NEWLINE:
            if _is_docstring(statement):
                runs.append([])
            else:
                shift = 1 + is_inner
                first, end = statement[0].start[0] - shift, token.start[0] + 1 - shift
                if first >= 0:
                    runs[-1].append((first, end))
            statement = []
    return [run for run in runs if run]


def _is_docstring(statement: Sequence[tokenize.TokenInfo]) -> bool:
    return all(token.type in (tokenize.STRING, tokenize.NEWLINE) for token in statement)
