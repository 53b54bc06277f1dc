"""Operators on statements: remove, unwrap, invert, shuffle."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, replaced, swapped
from pytest_ssr.source.syntax_tree import (
    DEFINITIONS,
    Edit,
    ParsedSource,
    indentation,
    is_docstring,
    is_guard,
    statements,
    without_statement,
)

_FIXED = (
    "return_statement", "raise_statement", "import_statement", "import_from_statement", "pass_statement", *DEFINITIONS,
)  # fmt: skip


def remove_statement(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Remove a loop, a conditional or a call statement."""
    if node.parent is not None and node.parent.type in ("block", "module"):
        yield (without_statement(source, node),)


def remove_call(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Remove a statement that is only a call."""
    inner = node.named_children[0] if node.named_child_count == 1 else None
    if inner is not None and inner.type in ("call", "await"):
        yield from remove_statement(source, node, rng)


def remove_wrapper(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Keep the body of a `try` or `with`, and remove what is around it."""
    body = node.child_by_field_name("body")
    if body is None or not statements(body) or source.line_start(body.start_byte) == source.line_start(node.start_byte):
        return
    inner, outer = indentation(source, statements(body)[0]), indentation(source, node)
    if b"'''" in source.text(body) or b'"""' in source.text(body) or not inner.startswith(outer):
        return
    start = source.line_start(statements(body)[0].start_byte)
    lines = source.data[start : body.end_byte].split(b"\n")
    moved = [outer + line[len(inner) :] if line.startswith(inner) else line for line in lines]
    yield (Edit(source.line_start(node.start_byte), node.end_byte, b"\n".join(moved)),)


def invert_if(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Take the other branch: negate the condition of an `if`, an `elif` or a `while`, or exchange two branches."""
    condition = node.child_by_field_name("condition")
    if condition is not None and condition.type != "not_operator":
        text = source.text(condition)
        yield replaced(condition, b"not (" + text + b")" if condition.type != "identifier" else b"not " + text)
    others = node.children_by_field_name("alternative") if node.type == "if_statement" else []
    if len(others) == 1 and others[0].type == "else_clause":
        one, other = node.child_by_field_name("consequence"), others[0].child_by_field_name("body")
        if one is not None and other is not None and _own_lines(source, one) and _own_lines(source, other):
            yield swapped(source, one, other)


def _own_lines(source: ParsedSource, block: Node) -> bool:
    return not source.data[source.line_start(block.start_byte) : block.start_byte].strip()


def remove_else(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Remove an `else` or `elif` branch of an `if`."""
    parent = node.parent
    if parent is not None and parent.type in ("if_statement", "for_statement", "while_statement"):
        start = source.line_start(node.start_byte)
        if not source.data[start : node.start_byte].strip():
            last = node == parent.children[-1]
            yield (Edit(start, source.line_end(node.end_byte) if not last else node.end_byte, b""),)


def shuffle_statements(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange two neighbouring statements of a block."""
    movable = [s for s in statements(node) if not is_docstring(s) and not is_guard(s)]
    for one, other in pairwise(movable):
        if one.type not in _FIXED and other.type not in _FIXED and source.text(one) != source.text(other):
            yield swapped(source, one, other)


_IF = "def f(a):\n    if a:\n        g()\n    return 1\n"

OPERATORS = (
    Operator("remove-loop", ("for_statement", "while_statement"), remove_statement,
             (("def f(a):\n    for x in a:\n        g(x)\n    return 1\n", "def f(a):\n    return 1\n"),), "SWE-smith"),
    Operator("remove-conditional", ("if_statement",), remove_statement,
             ((_IF, "def f(a):\n    return 1\n"),), "SWE-smith"),
    Operator("remove-call", ("expression_statement",), remove_call,
             (("def f(a):\n    g(a)\n    return a\n", "def f(a):\n    return a\n"),
              ("def f(a):\n    g(a)\n", "def f(a):\n    pass\n")), "mistakes"),
    Operator("remove-wrapper", ("try_statement", "with_statement"), remove_wrapper,
             (("def f():\n    with a:\n        b()\n        c()\n", "def f():\n    b()\n    c()\n"),), "SWE-smith"),
    Operator("invert-if", ("if_statement", "elif_clause", "while_statement"), invert_if,
             ((_IF, _IF.replace("if a", "if not a")),
              ("if a:\n    b()\nelse:\n    c()\n", "if a:\n    c()\nelse:\n    b()\n")), "SWE-smith"),
    Operator("remove-else", ("else_clause", "elif_clause"), remove_else,
             (("if a:\n    b()\nelse:\n    c()\nd()\n", "if a:\n    b()\n\nd()\n"),), "mistakes"),
    Operator("shuffle-statements", ("block",), shuffle_statements,
             (("def f():\n    a()\n    b()\n", "def f():\n    b()\n    a()\n"),), "SWE-smith"),
)  # fmt: skip
