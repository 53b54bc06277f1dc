"""Byte spans of a Python file: statements with their decorators and comments, elements of lists; taken out cleanly."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_ssr.injectors.python_source import Edit
from pytest_ssr.quiet import recorded_warnings

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Lines:
    """A file, its syntax tree, and where its lines begin."""

    data: bytes
    """The content."""
    tree: ast.Module
    """The tree; its columns count bytes."""
    starts: tuple[int, ...]
    """First byte of each line, and one past the last byte."""

    def at(self, line: int, column: int) -> int:
        """Return the byte of a 1-based line and a 0-based column."""
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
        """Return a node's first byte and one past its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def line(self, number: int) -> bytes:
        """Return a 1-based line with its newline."""
        return self.data[self.starts[number - 1] : self.starts[number]]


def read_lines(data: bytes) -> Lines | None:
    """Return a file's lines and tree; None for what is no UTF-8 Python or has unusual line ends."""
    if re.search(rb"\r(?!\n)", data):
        return None
    try:
        data.decode("utf-8")
        with recorded_warnings():
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if re.search(rb"coding[:=](?!\s*utf-?8)", b"\n".join(data.split(b"\n")[:2]), re.IGNORECASE):
        return None
    # Columns of the first line do not count a byte order mark.
    first = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    starts = [first, *(m.end() for m in re.finditer(rb"\n", data))]
    if starts[-1] != len(data):
        starts.append(len(data))
    return Lines(data, tree, tuple(starts))


def first_line(node: ast.stmt) -> int:
    """Return the 1-based line where a statement begins, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    lines: list[int] = [node.lineno, *(d.lineno for d in decorators)]
    return min(lines)


def take_out(lines: Lines, nodes: Sequence[ast.stmt]) -> list[Edit] | None:
    """Return the edits that take statements out with their comments and spacing; None when one shares its line."""
    edits: list[Edit] = []
    for node in nodes:
        assert node.end_lineno is not None
        top, bottom = first_line(node), node.end_lineno
        head = lines.line(top)
        indent = head[: len(head) - len(head.lstrip())]
        tail = lines.data[lines.span(node)[1] : lines.starts[bottom]].strip()
        lead = lines.data[lines.starts[top - 1] : begin(lines, node)]
        if lead.strip() or (tail and not tail.startswith(b"#")):
            return None
        while top > 1 and lines.line(top - 1).startswith(indent + b"#"):
            top -= 1
        total = len(lines.starts) - 1
        after = bottom
        while after < total and not lines.line(after + 1).strip():
            after += 1
        following = lines.line(after + 1) if after < total else b""
        if not following.strip() or len(following) - len(following.lstrip()) < len(indent):
            after = bottom
            while top > 1 and not lines.line(top - 1).strip():
                top -= 1
        edits.append(Edit(lines.starts[top - 1], lines.starts[after], b""))
    return [_to_the_end(lines, e) for e in _merged(edits)]


def _to_the_end(lines: Lines, edit: Edit) -> Edit:
    """Take the blank lines above as well when nothing follows."""
    if lines.data[edit.end :].strip():
        return edit
    above = lines.data[: edit.start].rstrip()
    return Edit(min(edit.start, len(above) + 1) if above else 0, edit.end, b"")


def begin(lines: Lines, node: ast.stmt) -> int:
    """Return a statement's first byte, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    if decorators:
        return lines.data.rindex(b"@", 0, lines.span(decorators[0])[0])
    return lines.span(node)[0]


def drop_elements(
    lines: Lines, elements: Sequence[ast.expr | ast.alias], gone: Collection[int], *, in_tuple: bool = False
) -> list[Edit]:
    """Return the edits that take some elements, not all, out of a comma-separated list.

    in_tuple: a single element that is left keeps a comma after it.
    """
    spans = [lines.span(e) for e in elements]
    edits: list[Edit] = []
    kept = [i for i in range(len(spans)) if i not in gone]
    for index in sorted(gone):
        start, end = spans[index]
        own = _own_lines(lines, start, end)
        if own is not None:
            edits.append(own)
        elif index < kept[-1]:
            edits.append(Edit(start, spans[index + 1][0], b""))
        else:
            edits.append(Edit(spans[index - 1][1], end, b""))
    edits = _merged(edits)
    if in_tuple and len(kept) == 1:
        end = spans[kept[0]][1]
        comma = re.compile(rb"\s*,").match(lines.data, end)
        if comma is None or any(e.start < comma.end() and comma.start() < e.end for e in edits):
            edits.append(Edit(end, end, b","))
    return edits


def _merged(edits: Sequence[Edit]) -> list[Edit]:
    """Join deletions that overlap or touch, such as those of neighbours and of the blank lines between them."""
    merged: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if merged and edit.start <= merged[-1].end:
            merged[-1] = Edit(merged[-1].start, max(merged[-1].end, edit.end), b"")
        else:
            merged.append(edit)
    return merged


def _own_lines(lines: Lines, start: int, end: int) -> Edit | None:
    """Return the edit that takes whole lines, when an element has them to itself."""
    line_start = lines.data.rfind(b"\n", 0, start) + 1
    line_end = lines.data.find(b"\n", end) + 1
    if line_end == 0 or lines.data[line_start:start].strip():
        return None
    rest = lines.data[end:line_end].strip()
    if not re.fullmatch(rb",\s*(#.*)?", rest):
        return None
    return Edit(line_start, line_end, b"")


def words(data: bytes) -> frozenset[str]:
    """Return every identifier-like word of a text, in code, strings and comments alike."""
    return frozenset(re.findall(r"\w+", data.decode("utf-8", "replace")))
