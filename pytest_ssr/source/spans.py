"""Find the byte spans of statements (with decorators and comments) and list elements, and remove them cleanly."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_ssr.source.parsing import parse_source, recorded_warnings
from pytest_ssr.source.syntax_tree import Edit

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Lines:
    """A file, its syntax tree, and the offsets of its lines."""

    data: bytes
    """The content."""
    tree: ast.Module
    """The tree; its columns count bytes."""
    starts: tuple[int, ...]
    """Offset of the first byte of each line, and the size of the file."""

    def at(self, line: int, column: int) -> int:
        """Return the byte offset of a 1-based line and a 0-based column."""
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
        """Return the offset of a node's first byte and the offset after its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def line(self, number: int) -> bytes:
        """Return a 1-based line with its newline."""
        return self.data[self.starts[number - 1] : self.starts[number]]


def read_lines(data: bytes) -> Lines | None:
    """Return a file's lines and tree; None if it is not UTF-8 Python or has unusual line endings."""
    if re.search(rb"\r(?!\n)", data):
        return None
    try:
        data.decode("utf-8")
        with recorded_warnings():
            tree = parse_source(data)
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
    """Return the 1-based line on which a statement begins, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    lines: list[int] = [node.lineno, *(d.lineno for d in decorators)]
    return min(lines)


def remove_statements(lines: Lines, nodes: Sequence[ast.stmt]) -> list[Edit] | None:
    """Return the edits that remove statements with their comments and blank lines; None if one shares a line."""
    edits: list[Edit] = []
    for node in nodes:
        assert node.end_lineno is not None
        top, bottom = first_line(node), node.end_lineno
        head = lines.line(top)
        indent = head[: len(head) - len(head.lstrip())]
        tail = lines.data[lines.span(node)[1] : lines.starts[bottom]].strip()
        lead = lines.data[lines.starts[top - 1] : first_byte(lines, node)]
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
    return [_extend_to_end(lines, e) for e in _merged(edits)]


def _extend_to_end(lines: Lines, edit: Edit) -> Edit:
    """Extend a removal to the blank lines above if nothing follows."""
    if lines.data[edit.end :].strip():
        return edit
    above = lines.data[: edit.start].rstrip()
    return Edit(min(edit.start, len(above) + 1) if above else 0, edit.end, b"")


def first_byte(lines: Lines, node: ast.stmt) -> int:
    """Return the offset of a statement's first byte, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    if decorators:
        return lines.data.rindex(b"@", 0, lines.span(decorators[0])[0])
    return lines.span(node)[0]


def remove_elements(
    lines: Lines, elements: Sequence[ast.expr | ast.alias], indices: Collection[int], *, in_tuple: bool = False
) -> list[Edit]:
    """Return the edits that remove some elements, but not all, from a comma-separated list.

    in_tuple: whether a single remaining element needs a comma after it.
    """
    spans = [lines.span(e) for e in elements]
    edits: list[Edit] = []
    remaining = [i for i in range(len(spans)) if i not in indices]
    for index in sorted(indices):
        start, end = spans[index]
        whole_lines = _own_lines(lines, start, end)
        if whole_lines is not None:
            edits.append(whole_lines)
        elif index < remaining[-1]:
            edits.append(Edit(start, spans[index + 1][0], b""))
        else:
            edits.append(Edit(spans[index - 1][1], end, b""))
    edits = _merged(edits)
    if in_tuple and len(remaining) == 1:
        end = spans[remaining[0]][1]
        comma = re.compile(rb"\s*,").match(lines.data, end)
        if comma is None or any(e.start < comma.end() and comma.start() < e.end for e in edits):
            edits.append(Edit(end, end, b","))
    return edits


def _merged(edits: Sequence[Edit]) -> list[Edit]:
    """Merge deletions that overlap or touch, such as those of neighbours and of the blank lines between them."""
    merged: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if merged and edit.start <= merged[-1].end:
            merged[-1] = Edit(merged[-1].start, max(merged[-1].end, edit.end), b"")
        else:
            merged.append(edit)
    return merged


def _own_lines(lines: Lines, start: int, end: int) -> Edit | None:
    """Return the edit that removes whole lines, if an element does not share them."""
    line_start = lines.data.rfind(b"\n", 0, start) + 1
    line_end = lines.data.find(b"\n", end) + 1
    if line_end == 0 or lines.data[line_start:start].strip():
        return None
    rest = lines.data[end:line_end].strip()
    if not re.fullmatch(rb",\s*(#.*)?", rest):
        return None
    return Edit(line_start, line_end, b"")


def identifiers(data: bytes) -> frozenset[str]:
    """Return every identifier-like word of a file, in code, strings and comments."""
    return frozenset(re.findall(r"\w+", data.decode("utf-8", "replace")))
