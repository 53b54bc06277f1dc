"""Find the lines that a comment `# ssr: skip` excludes from changes.

On the line of a `def` or `class`, or of one of its decorators, the comment excludes the whole definition. Elsewhere it
excludes the statement that it belongs to, all lines of it; of a compound statement (`if`, `for`) only the lines up to
its colon. On a line of its own it excludes nothing, unless that line is inside a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.patch.changes import split_lines
from pytest_ssr.patch.line_matching import edits
from pytest_ssr.source.syntax_tree import DEFINITIONS, parse

_STATEMENTS = ("_statement", "_definition", "_clause")
_KINDS = ("function", "class", "statement")
_COMMENT = re.compile(rb"(?:^|\s)#\s*ssr:\s*skip\b", re.MULTILINE)
Rows = tuple[int, int]
"""0-based lines, half-open."""


@dataclass(frozen=True, slots=True)
class SkippedLines:
    """The excluded parts of one file."""

    functions: frozenset[Rows]
    """Functions, decorators included."""
    classes: frozenset[Rows]
    statements: frozenset[Rows]
    """Statements outside of these, each with its own comment."""

    def touched_by(self, original: bytes, changed: bytes | None) -> bool:
        """Return whether a change of the file lies in an excluded part, or deletes the file."""
        return self.first_touched(original, changed) is not None

    def first_touched(self, original: bytes, changed: bytes | None) -> Rows | None:
        """Return the first excluded part that a change touches; None if it touches none."""
        spans = sorted(self.functions | self.classes | self.statements)
        if changed is None or not spans:
            return spans[0] if spans else None
        changes = list(edits(split_lines(original), split_lines(changed)))
        for first, end in spans:
            for edit in changes:
                # An insertion before the first line or after the last one lies outside.
                reaches = first < edit.old_to if edit.old_to > edit.old_from else first < edit.old_from
                if edit.old_from < end and reaches:
                    return first, end
        return None

    def overlaps(self, rows: Rows) -> bool:
        """Return whether lines have a part of an excluded function or class."""
        return any(first < rows[1] and rows[0] < end for first, end in self.functions | self.classes)


NOTHING_SKIPPED = SkippedLines(frozenset(), frozenset(), frozenset())


def skipped_lines(path: str, data: bytes) -> SkippedLines:
    """Return what the comments of a file exclude; nothing if the file cannot be parsed."""
    source = parse(path, data) if _COMMENT.search(data) else None
    if source is None:
        return NOTHING_SKIPPED
    owners: dict[Rows, str] = {}
    nodes = list(_all_nodes(source.root))
    for comment in nodes:
        if comment.type == "comment" and _COMMENT.search(source.text(comment)):
            owner = _owner(nodes, comment.start_point.row)
            if owner is not None:
                end = owner.end_point.row + 1 if owner.type in DEFINITIONS else _header_end(owner)
                owners[owner.start_point.row, end] = _kind(owner)
    definitions = [rows for rows, kind in owners.items() if kind != "statement"]
    outer = {
        rows: kind
        for rows, kind in owners.items()
        if not any(_is_inside(rows, other) for other in definitions if other != rows)
    }
    return SkippedLines(*(frozenset(r for r in outer if outer[r] == kind) for kind in _KINDS))


def _kind(owner: Node) -> str:
    definition = owner.child_by_field_name("definition") or owner
    return {"function_definition": "function", "class_definition": "class"}.get(definition.type, "statement")


def _all_nodes(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children


def _owner(nodes: Sequence[Node], row: int) -> Node | None:
    """Return the definition whose header contains a line; otherwise the innermost statement or clause there, if any."""
    here = [
        n for n in nodes if n.is_named and n.type.endswith(_STATEMENTS) and n.start_point.row <= row < _header_end(n)
    ]
    # A function and its decorators are two nodes: the outer one has all lines.
    definitions = [n for n in here if n.type in DEFINITIONS]
    if definitions:
        inner = max(definitions, key=lambda n: n.start_byte)
        parent = inner.parent
        return parent if parent is not None and parent.type == "decorated_definition" else inner
    return max(here, key=lambda n: (n.start_byte, -n.end_byte), default=None)


def _header_end(node: Node) -> int:
    """Return the line after a statement, or after the colon of a compound one."""
    definition = node.child_by_field_name("definition")
    if definition is not None:
        return _header_end(definition)
    colon = next((c for c in node.children if c.type == ":"), None)
    return (colon.start_point.row if colon is not None else node.end_point.row) + 1


def _is_inside(rows: Rows, other: Rows) -> bool:
    return other[0] <= rows[0] and rows[1] <= other[1]
