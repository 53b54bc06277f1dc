"""Parse Python files, find their functions and classes, and edit byte spans.

Edits replace bytes, so formatting and comments survive by construction (tree-sitter and its Python grammar).
"""

from __future__ import annotations

import bisect
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tree_sitter_python
from tree_sitter import Language, Node, Parser

from pytest_ssr.source.parsing import has_long_integer

MODULE = "<module>"
_NOT_CODE = frozenset(
    (
        "type",
        "type_alias_statement",
        "comment",
        "import_statement",
        "import_from_statement",
        "future_import_statement",
    )
)
_BEYOND_ASCII = bytes(range(128)) + b"x" * 128
_BRANCHES = ("if_statement", "try_statement", "elif_clause", "else_clause", "except_clause", "finally_clause", "block")
DEFINITIONS = ("function_definition", "class_definition", "decorated_definition")


@dataclass(frozen=True, slots=True)
class Edit:
    """A span of bytes and its replacement."""

    start: int
    """Offset of the first byte."""
    end: int
    """Offset after the last byte."""
    text: bytes
    """The replacement."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A function with everything nested in it, a class, or the module (its assignments outside of both)."""

    qualname: str
    """`Parser.parse`, or `<module>`."""
    kind: str
    """function, class or module."""
    node: Node
    """The definition (without decorators), or the root."""
    start: int
    """Offset of the definition's first line, decorators included."""
    end: int
    """Offset after the last byte of the definition."""

    @property
    def line(self) -> int:
        """1-based line of the definition."""
        return self.node.start_point.row + 1


@dataclass(frozen=True, slots=True)
class ParsedSource:
    """One file and its syntax tree."""

    path: str
    """Relative path."""
    data: bytes
    """The content."""
    root: Node
    """The tree."""

    def text(self, node: Node) -> bytes:
        """Return a node's bytes."""
        return self.data[node.start_byte : node.end_byte]

    def line(self, at: int) -> int:
        """Return the 1-based line of a byte."""
        return bisect.bisect_left(_newlines(self.data), at) + 1

    def line_start(self, at: int) -> int:
        """Return the offset of the first byte of the line that contains `at`."""
        return self.data.rfind(b"\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        """Return the offset after the newline of the line that contains `at`."""
        newline = self.data.find(b"\n", at)
        return len(self.data) if newline < 0 else newline + 1


@functools.lru_cache(maxsize=16)
def _newlines(data: bytes) -> list[int]:
    return [match.start() for match in re.finditer(b"\n", data)]


@functools.cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_python.language()))


def parse(path: str, data: bytes) -> ParsedSource | None:
    """Return the parsed file, or None if it has a syntax error, an unsupported encoding or a long integer.

    Supported are UTF-8 and the encodings that keep ASCII and use one byte per character (latin-1, cp1252, koi8-r).
    """
    text = _readable(data)
    if text is None or has_long_integer(text) or b"\r" in data.replace(b"\r\n", b""):
        return None
    tree = _parser().parse(text)
    return None if tree.root_node.has_error else ParsedSource(path, data, tree.root_node)


def _readable(data: bytes) -> bytes | None:
    """Return UTF-8 text with every character at the same offset as in the data, or None."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, ValueError, LookupError):
        return None
    if encoding in ("utf-8", "utf-8-sig", "ascii"):
        return data
    same = "".join(c if c.isascii() else "x" for c in text).encode()
    return same if same == replace_non_ascii(data) else None


def replace_non_ascii(data: bytes) -> bytes:
    """Return the data with a letter for each byte beyond ASCII: offsets stay valid in parsers that need UTF-8."""
    return data.translate(_BEYOND_ASCII)


def splice(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Return the data with all edits applied; raises ValueError if two of them overlap."""
    parts: list[bytes] = []
    at = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at or edit.end < edit.start:
            raise ValueError(f"edits overlap at byte {edit.start}")
        parts += (data[at : edit.start], edit.text)
        at = edit.end
    return b"".join([*parts, data[at:]])


def scopes(source: ParsedSource) -> list[Scope]:
    """Return the functions and classes of a module in order, then the module itself if it assigns anything."""
    result = list(_definitions(source, source.root, ""))
    if constants(source, source.root):
        result.append(Scope(MODULE, "module", source.root, 0, len(source.data)))
    return result


def _definitions(source: ParsedSource, parent: Node, prefix: str) -> Iterator[Scope]:
    for child in parent.named_children:
        node = child.child_by_field_name("definition") if child.type == "decorated_definition" else child
        if node is None:
            continue
        if node.type in ("function_definition", "class_definition"):
            name_node = node.child_by_field_name("name")
            name = prefix + (source.text(name_node).decode(errors="replace") if name_node is not None else "?")
            kind = "function" if node.type == "function_definition" else "class"
            yield Scope(name, kind, node, source.line_start(child.start_byte), child.end_byte)
            body = node.child_by_field_name("body")
            if kind == "class" and body is not None:
                yield from _definitions(source, body, f"{name}.")
        elif node.type in _BRANCHES and not prefix and not is_guard(node):
            yield from _definitions(source, node, prefix)


def constants(source: ParsedSource, parent: Node) -> list[Node]:
    """Return the statements of a module or class body that assign neither a dunder nor a type variable."""
    assignments: list[Node] = []
    for node in parent.named_children:
        if node.type == "expression_statement" and _is_plain_assignment(source, node):
            assignments.append(node)
        elif node.type in _BRANCHES and not is_guard(node):
            assignments += constants(source, node)
    return assignments


def is_guard(node: Node) -> bool:
    """Return whether an `if` checks for a type checker or for being the main module."""
    return is_type_checking_guard(node) or is_main_guard(node)


def is_type_checking_guard(node: Node) -> bool:
    """Return whether an `if` checks for a type checker."""
    return b"TYPE_CHECKING" in _condition(node)


def is_main_guard(node: Node) -> bool:
    """Return whether an `if` checks for being the main module."""
    text = _condition(node)
    return b"__name__" in text and b"__main__" in text


def _condition(node: Node) -> bytes:
    condition = node.child_by_field_name("condition") if node.type == "if_statement" else None
    return (condition.text if condition is not None else None) or b""


def _is_plain_assignment(source: ParsedSource, node: Node) -> bool:
    first = node.named_children[0] if node.named_children else None
    if first is None or first.type != "assignment":
        return False
    left, right = first.child_by_field_name("left"), first.child_by_field_name("right")
    if left is None or right is None or source.text(left).startswith(b"__"):
        return False
    return b"TypeVar" not in source.text(right)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and its descendants that are code: no annotations, comments, imports, docstrings or guards."""
    pending = [node]
    while pending:
        current = pending.pop()
        kind = current.type
        if kind in _NOT_CODE:
            continue
        if (kind == "expression_statement" and is_docstring(current)) or (kind == "if_statement" and is_guard(current)):
            continue
        yield current
        pending += reversed(current.children)


def is_docstring(node: Node) -> bool:
    """Return whether a statement is only a string."""
    return (
        node.type == "expression_statement" and node.named_child_count == 1 and node.named_children[0].type == "string"
    )


def statements(block: Node) -> list[Node]:
    """Return a block's statements without comments."""
    return [c for c in block.named_children if c.type != "comment"]


def count_statements(node: Node) -> int:
    """Return the number of statements in a node at all depths, without comments."""
    count, pending = 0, [node]
    while pending:
        inner = pending.pop()
        count += len(statements(inner)) if inner.type == "block" else 0
        pending += inner.named_children
    return count


def without_statement(source: ParsedSource, node: Node) -> Edit:
    """Return the edit that removes a statement: its lines, or `pass` if the block would be empty."""
    block = node.parent
    siblings = statements(block) if block is not None else []
    start, end = source.line_start(node.start_byte), source.line_end(node.end_byte)
    before = source.data[start : node.start_byte]
    after = source.data[node.end_byte : end].strip()
    alone = not before.strip() and (not after or after.startswith(b"#"))
    others = [s for s in siblings if s != node and not is_docstring(s)]
    if not alone or not others:
        return Edit(node.start_byte, node.end_byte, b"pass")
    return Edit(start, end, b"")


def indentation(source: ParsedSource, node: Node) -> bytes:
    """Return the white space before a node on its line."""
    line = source.data[source.line_start(node.start_byte) : node.start_byte]
    return line[: len(line) - len(line.lstrip())]
