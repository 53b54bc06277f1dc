"""Turn code into a sequence of tokens that also tells its lines and its indentation, and back."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.solvers.search.token_model import Kind, tokens_of

NEWLINE, INDENT, DEDENT = b"\n", b"<in>", b"<out>"
LAYOUT = frozenset((NEWLINE, INDENT, DEDENT))
_OPENING, _CLOSING = frozenset((b"(", b"[", b"{")), frozenset((b")", b"]", b"}"))
_NO_SPACE_AFTER = frozenset((b"(", b"[", b"{", b".", b"~", b"@"))
_NO_SPACE_BEFORE = frozenset((b")", b"]", b"}", b",", b".", b":"))
_SPACED = frozenset(
    (b"in", b"is", b"not", b"and", b"or", b"if", b"else", b"elif", b"return", b"yield", b"lambda", b"assert", b"del",
     b"raise", b"from", b"import", b"for", b"while", b"with", b"as", b"await", b"async", b"except", b"=", b",")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stream:
    """The tokens of a file."""

    texts: list[bytes] = field(default_factory=list)
    """Their texts, with `NEWLINE` between logical lines, and `INDENT` and `DEDENT` where the indentation changes."""
    starts: list[int] = field(default_factory=list)
    """The offset of each; that of the next token for the indentation."""
    is_name: list[bool] = field(default_factory=list)
    """Whether each is a name or a literal text."""

    def index(self, offset: int) -> int:
        """Return the index of the first token at or behind an offset."""
        return bisect.bisect_left(self.starts, offset)

    def between(self, start: int, end: int) -> list[bytes]:
        """Return the tokens of a span, without line ends and indentation at its edges."""
        return trimmed(self.texts[self.index(start) : self.index(end)])

    def _add(self, text: bytes, start: int, is_name: bool) -> None:
        self.texts.append(text)
        self.starts.append(start)
        self.is_name.append(is_name)


def stream_of(data: bytes) -> Stream:
    """Return the tokens of a file; line ends inside of brackets are left out."""
    stream, levels, depth, at_start = Stream(), [0], 0, True
    for token in tokens_of(data):
        if token.kind is Kind.LINE:
            if not depth and not at_start:
                stream._add(NEWLINE, token.start, False)
                at_start = True
            continue
        if token.text == b"\r":
            # Of a line that ends with CRLF.
            continue
        if at_start and not depth:
            column = token.start - (data.rfind(b"\n", 0, token.start) + 1)
            if column > levels[-1]:
                levels.append(column)
                stream._add(INDENT, token.start, False)
            while column < levels[-1]:
                levels.pop()
                stream._add(DEDENT, token.start, False)
        at_start = False
        depth = max(0, depth + (token.text in _OPENING) - (token.text in _CLOSING))
        stream._add(token.text, token.start, token.kind in (Kind.NAME, Kind.TEXT))
    return stream


def logical_lines(stream: Stream) -> Iterator[tuple[int, int]]:
    """Yield the first index of each line, and the one of its end."""
    first = 0
    for index, text in enumerate(stream.texts):
        if text == NEWLINE:
            yield first, index
            first = index + 1
    if first < len(stream.texts):
        yield first, len(stream.texts)


def trimmed(texts: Sequence[bytes]) -> list[bytes]:
    """Return tokens without line ends and indentation at the beginning and the end."""
    first, last = 0, len(texts)
    while first < last and texts[first] in LAYOUT:
        first += 1
    while first < last and texts[last - 1] in LAYOUT:
        last -= 1
    return list(texts[first:last])


def code_of(texts: Sequence[bytes], indentation: bytes, *, in_brackets: bool = False) -> bytes | None:
    """Return tokens as code; None if a line is indented less than the first.

    indentation: of the first line. in_brackets: whether the code is a part of a call's arguments.
    """
    unit = b"\t" if indentation.startswith(b"\t") else b"    "
    lines, level = [list[bytes]()], 0
    levels = [0]
    for text in texts:
        if text == NEWLINE:
            lines.append([])
            levels.append(level)
        elif text in LAYOUT:
            level += 1 if text == INDENT else -1
            levels[-1] = level
        else:
            lines[-1].append(text)
    if min(levels) < 0 or not all(lines):
        return None
    written = [_line(line, int(in_brackets)) for line in lines]
    return (b"\n" + indentation).join(unit * depth + line for depth, line in zip(levels, written, strict=True))


def _line(texts: Sequence[bytes], depth: int) -> bytes:
    """Return one line with usual spaces. depth: number of open brackets before it."""
    result, before = b"", b""
    for index, text in enumerate(texts):
        if index and _has_space(before, text, depth, texts[index - 2] if index > 1 else b""):
            result += b" "
        depth += (text in _OPENING) - (text in _CLOSING)
        result += text
        before = text
    return result


def _has_space(before: bytes, text: bytes, depth: int, earlier: bytes) -> bool:
    if before in _NO_SPACE_AFTER or text in _NO_SPACE_BEFORE:
        return False
    if text in (b"(", b"["):
        return before in _SPACED or not (before[-1:].isalnum() or before[-1:] in (b"_", b")", b"]", b'"', b"'"))
    if depth and b"=" in (before, text):
        return False
    # A sign that has no left operand belongs to the right one.
    is_unary = before in (b"-", b"+", b"*", b"**") and (
        not earlier or earlier in _OPENING or earlier in _SPACED or earlier in (b":", b"==")
    )
    return not is_unary
