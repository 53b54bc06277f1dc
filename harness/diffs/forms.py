"""Name how a diff differs from what `git diff` writes, for the record of a grade; nothing depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from harness.diffs.commands import StepResult


class Form(StrEnum):
    """A property of a diff that the strict engine does not accept, or of how it was applied."""

    OFFSET = "offset"
    """A hunk applies at other lines than it states."""
    FUZZ = "fuzz"
    """The context of a hunk is not that of the file."""
    FENCE = "fence"
    MAIL = "mail"
    """It is a mail of `git format-patch`, or several."""
    TEXT = "text"
    """Lines before, between or after the files belong to no diff."""
    PREFIX = "prefix"
    """The names do not begin with a/ and b/."""
    PLAIN = "plain"
    """A file has no `diff --git` line."""
    CONTEXT_DIFF = "context-diff"
    CRLF = "crlf"
    """Its own lines end in CRLF."""
    BYTE_ORDER_MARK = "byte-order-mark"
    NO_FINAL_NEWLINE = "no-final-newline"


_PATTERNS = {
    Form.FENCE: rb"^[ \t]*(?:```|~~~)",
    Form.MAIL: rb"^From [0-9a-f]{40,64} ",
    Form.CONTEXT_DIFF: rb"^\*\*\*\*\*\*\*\*",
    Form.CRLF: rb"^(?:diff |--- |\+\+\+ |@@ )[^\n]*\r$",
    Form.BYTE_ORDER_MARK: rb"\A\xef\xbb\xbf",
    Form.PREFIX: rb"^(?:diff --git (?!\"?a/)|--- (?!\"?a/|/dev/null)|\+\+\+ (?!\"?b/|/dev/null))",
    Form.NO_FINAL_NEWLINE: rb"[^\n]\Z",
}
_TEXT = re.compile(
    rb"[ +\-@\\\n]|diff |index |(?:old|new|deleted file|new file) mode |(?:similarity|dissimilarity) index "
    rb"|(?:rename|copy) (?:from|to) |GIT binary patch|(?:literal|delta) \d|Index: |={60}|\*\*\*|! |[A-Za-z][^ ]+$"
)
"""How the lines of diffs begin; the last are lines of binary data."""


def forms_of(data: bytes, result: StepResult) -> tuple[Form, ...]:
    """Return the forms of a diff that a command has applied, in the order of their definition."""
    found = {form for form, pattern in _PATTERNS.items() if re.search(pattern, data, re.MULTILINE)}
    found |= set(_notes(result.output))
    lines = data.split(b"\n")
    if any(line and not _TEXT.match(line.rstrip(b"\r") or b"\n") for line in lines):
        found.add(Form.TEXT)
    if data.count(b"\n@@ ") and not re.search(rb"^diff --git ", data, re.MULTILINE):
        found.add(Form.PLAIN)
    return tuple(form for form in Form if form in found)


def _notes(output: bytes) -> Iterator[Form]:
    """Yield what git and GNU patch note about hunks, in the locale C."""
    if re.search(rb"\(offset -?\d+ line", output):
        yield Form.OFFSET
    if re.search(rb" with fuzz \d|^Context reduced to ", output, re.MULTILINE):
        yield Form.FUZZ
