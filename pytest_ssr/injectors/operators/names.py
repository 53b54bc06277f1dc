"""Operators on names: the wrong variable, a value that is not assigned, another default."""

from __future__ import annotations

import functools
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, replaced
from pytest_ssr.source.syntax_tree import ParsedSource, without_statement

_USES = (
    "argument_list", "return_statement", "comparison_operator", "binary_operator", "boolean_operator", "subscript",
)  # fmt: skip


def remove_assignment(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Remove an assignment if the name already has a value, or is an attribute or an item."""
    inner = node.named_children[0] if node.named_children else None
    if inner is None or inner.type not in ("assignment", "augmented_assignment"):
        return
    left, right = inner.child_by_field_name("left"), inner.child_by_field_name("right")
    if left is None or right is None:
        return
    if inner.type == "assignment" and left.type == "identifier":
        function = _enclosing_function(node)
        names = _assigned(source, function) if function is not None else ()
        if not any(name == source.text(left) and end <= node.start_byte for name, end in names):
            return
    elif left.type not in ("identifier", "attribute", "subscript"):
        return
    yield (without_statement(source, node),)


def wrong_default(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Change the default of a parameter."""
    value = node.child_by_field_name("value")
    if value is None:
        return
    text = source.text(value)
    table = {
        b"None": b"False",
        b"True": b"False",
        b"False": b"True",
        b"()": b"None",
        b'""': b"None",
        b"''": b"None",
    }
    if text in table:
        yield replaced(value, table[text])
    elif value.type == "integer" and text.isdigit():
        yield replaced(value, b"%d" % (int(text) + 1))
    elif value.type in ("string", "identifier", "attribute"):
        yield replaced(value, b"None")


def stale_variable(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Use another variable that was assigned before, instead of the intended one."""
    function = _enclosing_function(node)
    if function is None or node.parent is None or node.parent.type not in _USES:
        return
    text = source.text(node)
    names = list(dict.fromkeys(name for name, end in _assigned(source, function) if end < node.start_byte))
    others = [name for name in names if name != text]
    if text in names and others:
        yield replaced(node, rng.choice(others))


def _enclosing_function(node: Node) -> Node | None:
    current = node.parent
    while current is not None and current.type != "function_definition":
        current = current.parent
    return current


@functools.lru_cache(maxsize=8)
def _assigned(source: ParsedSource, function: Node) -> tuple[tuple[bytes, int], ...]:
    """Return the names of parameters, assignments and loops, each with the offset after it, in order."""
    names: list[Node] = []
    parameters = function.child_by_field_name("parameters")
    for child in parameters.named_children if parameters is not None else ():
        name = child.child_by_field_name("name") or child
        if name.type != "identifier" and name.named_children:
            name = name.named_children[0]
        if name.type == "identifier" and source.text(name) not in (b"self", b"cls"):
            names.append(name)
    pending = list(reversed(function.named_children))
    while pending:
        node = pending.pop()
        if node.type in ("function_definition", "class_definition", "lambda"):
            continue
        if node.type in ("assignment", "for_statement"):
            left = node.child_by_field_name("left")
            if left is not None and left.type == "identifier":
                names.append(left)
        pending += reversed(node.named_children)
    return tuple((source.text(name), name.end_byte) for name in names)


OPERATORS = (
    Operator("remove-assignment", ("expression_statement",), remove_assignment,
             (("def f(a):\n    a.x = 1\n    return a\n", "def f(a):\n    return a\n"),
              ("def f(a):\n    a = a or 1\n    return a\n", "def f(a):\n    return a\n")), "SWE-smith"),
    Operator("wrong-default", ("default_parameter", "typed_default_parameter"), wrong_default,
             (("def f(a=None): g(a)\n", "def f(a=False): g(a)\n"), ("def f(a=1): g(a)\n", "def f(a=2): g(a)\n")), "mistakes"),
    Operator("stale-variable", ("identifier",), stale_variable,
             (("def f(a):\n    b = g()\n    return a\n", "def f(a):\n    b = g()\n    return b\n"),), "mistakes"),
)  # fmt: skip
