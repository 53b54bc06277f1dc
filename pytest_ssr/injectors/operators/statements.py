"""Operators on statements: taken out, unwrapped, inverted, shuffled, misdirected."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, replaced
from pytest_ssr.injectors.python_source import (
    DEFINITIONS,
    Edit,
    ParsedSource,
    indentation,
    is_docstring,
    statements,
    without_statement,
)

_NEIGHBOURS = {
    b"KeyError": b"IndexError", b"IndexError": b"KeyError", b"ValueError": b"TypeError", b"TypeError": b"ValueError",
    b"AttributeError": b"KeyError", b"OSError": b"FileNotFoundError", b"Exception": b"ValueError",
    b"StopIteration": b"IndexError", b"ImportError": b"ModuleNotFoundError", b"LookupError": b"KeyError",
    b"UnicodeDecodeError": b"UnicodeEncodeError", b"ZeroDivisionError": b"OverflowError",
    b"FileNotFoundError": b"PermissionError",
}  # fmt: skip


def remove_statement(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Take a loop, a conditional or a call statement out."""
    if node.parent is not None and node.parent.type in ("block", "module"):
        yield (without_statement(source, node),)


def remove_assignment(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Take an assignment out where the name has a value already, or is an attribute or an item."""
    inner = node.named_children[0] if node.named_children else None
    if inner is not None and inner.type in ("assignment", "augmented_assignment"):
        yield from remove_statement(source, node, chance)


def remove_call(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Take a statement out that is nothing but a call."""
    inner = node.named_children[0] if node.named_child_count == 1 else None
    if inner is not None and inner.type in ("call", "await"):
        yield from remove_statement(source, node, chance)


def remove_wrapper(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Keep the body of a `try` or `with`, and lose what is around it."""
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


def invert_if(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Take the other branch: negate the condition of an `if`, an `elif` or a `while`."""
    condition = node.child_by_field_name("condition")
    if condition is None:
        return
    text = source.text(condition)
    if condition.type == "not_operator":
        return
    yield replaced(condition, b"not (" + text + b")" if condition.type != "identifier" else b"not " + text)


def remove_else(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Lose an `else` or `elif` branch of an `if`."""
    parent = node.parent
    if parent is not None and parent.type in ("if_statement", "for_statement", "while_statement"):
        start = source.line_start(node.start_byte)
        if not source.data[start : node.start_byte].strip():
            last = node == parent.children[-1]
            yield (Edit(start, source.line_end(node.end_byte) if not last else node.end_byte, b""),)


def shuffle_statements(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Exchange two neighbouring statements of a block."""
    found = [s for s in statements(node) if not is_docstring(s)]
    ends = (
        "return_statement",
        "raise_statement",
        "import_statement",
        "import_from_statement",
        "pass_statement",
    )
    for one, other in pairwise(found):
        if one.type in (*ends, *DEFINITIONS) or other.type in (*ends, *DEFINITIONS):
            continue
        if source.text(one) != source.text(other):
            yield (
                Edit(one.start_byte, one.end_byte, source.text(other)),
                Edit(other.start_byte, other.end_byte, source.text(one)),
            )


def lost_return(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Forget to return a value, or return early none."""
    value = node.named_children[0] if node.named_children else None
    if value is None or value.type == "none":
        return
    if value.type in ("call", "await"):
        yield replaced(node, source.text(value))
    yield replaced(value, b"None")


def lost_await(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Forget an `await`."""
    inner = node.named_children[0] if node.named_children else None
    if inner is not None:
        yield replaced(node, source.text(inner))


def wrong_exception(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Catch or raise a neighbour of the exception that is meant."""
    for child in node.named_children:
        name = child
        if child.type == "call":
            name = child.child_by_field_name("function") or child
        elif child.type == "as_pattern" and child.named_children:
            name = child.named_children[0]
        if name.type == "identifier" and source.text(name) in _NEIGHBOURS:
            yield replaced(name, _NEIGHBOURS[source.text(name)])


def change_jump(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """`continue` where `break` is meant, or the reverse, or neither."""
    yield replaced(node, b"break" if node.type == "continue_statement" else b"continue")
    yield (without_statement(source, node),)


def wrong_default(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Another default of a parameter."""
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


def stale_variable(source: ParsedSource, node: Node, chance: Random) -> Edits:
    """Use another variable that was assigned before, in place of the one that is meant."""
    function = node.parent
    while function is not None and function.type != "function_definition":
        function = function.parent
    parent = node.parent
    if (
        function is None
        or parent is None
        or parent.type not in ("argument_list", "return_statement", "comparison_operator")
    ):
        return
    text = source.text(node)
    names: dict[bytes, None] = {}
    _assigned(source, function, node.start_byte, names)
    others = [n for n in names if n != text]
    if text in names and others:
        yield replaced(node, chance.choice(others))


def _assigned(source: ParsedSource, node: Node, before: int, names: dict[bytes, None]) -> None:
    if node.start_byte >= before:
        return
    if node.type in ("assignment", "for_statement"):
        left = node.child_by_field_name("left")
        if left is not None and left.type == "identifier" and left.end_byte < before:
            names.setdefault(source.text(left))
    elif node.type == "parameters":
        for child in node.named_children:
            name = child if child.type == "identifier" else child.child_by_field_name("name")
            if name is not None and name.type == "identifier" and source.text(name) not in (b"self", b"cls"):
                names.setdefault(source.text(name))
    for child in node.named_children:
        _assigned(source, child, before, names)


_IF = "def f(a):\n    if a:\n        g()\n    return 1\n"

OPERATORS = (
    Operator("remove-loop", ("for_statement", "while_statement"), remove_statement,
             (("def f(a):\n    for x in a:\n        g(x)\n    return 1\n", "def f(a):\n    return 1\n"),), "SWE-smith"),
    Operator("remove-conditional", ("if_statement",), remove_statement,
             ((_IF, "def f(a):\n    return 1\n"),), "SWE-smith"),
    Operator("remove-assignment", ("expression_statement",), remove_assignment,
             (("def f(a):\n    a.x = 1\n    return a\n", "def f(a):\n    return a\n"),), "SWE-smith"),
    Operator("remove-call", ("expression_statement",), remove_call,
             (("def f(a):\n    g(a)\n    return a\n", "def f(a):\n    return a\n"),), "mutmut"),
    Operator("remove-wrapper", ("try_statement", "with_statement"), remove_wrapper,
             (("def f():\n    with a:\n        b()\n        c()\n", "def f():\n    b()\n    c()\n"),), "SWE-smith"),
    Operator("invert-if", ("if_statement", "elif_clause", "while_statement"), invert_if,
             ((_IF, _IF.replace("if a", "if not a")),), "SWE-smith"),
    Operator("remove-else", ("else_clause", "elif_clause"), remove_else,
             (("if a:\n    b()\nelse:\n    c()\nd()\n", "if a:\n    b()\n\nd()\n"),), "mistakes"),
    Operator("shuffle-statements", ("block",), shuffle_statements,
             (("def f():\n    a()\n    b()\n", "def f():\n    b()\n    a()\n"),), "SWE-smith"),
    Operator("lost-return", ("return_statement",), lost_return,
             (("def f():\n    return g()\n", "def f():\n    g()\n"), ("def f(a):\n    return a\n", "def f(a):\n    return None\n")),
             "mistakes"),
    Operator("lost-await", ("await",), lost_await,
             (("async def f():\n    x = await g()\n", "async def f():\n    x = g()\n"),), "mistakes"),
    Operator("wrong-exception", ("except_clause", "raise_statement"), wrong_exception,
             (("try:\n    a()\nexcept KeyError:\n    b()\n", "try:\n    a()\nexcept IndexError:\n    b()\n"),
              ("raise ValueError('a')\n", "raise TypeError('a')\n")), "mistakes"),
    Operator("change-jump", ("break_statement", "continue_statement"), change_jump,
             (("while a:\n    b()\n    break\n", "while a:\n    b()\n    continue\n"),), "mistakes"),
    Operator("wrong-default", ("default_parameter", "typed_default_parameter"), wrong_default,
             (("def f(a=None): g(a)\n", "def f(a=False): g(a)\n"), ("def f(a=1): g(a)\n", "def f(a=2): g(a)\n")), "mistakes"),
    Operator("stale-variable", ("identifier",), stale_variable,
             (("def f(a):\n    b = g()\n    return a\n", "def f(a):\n    b = g()\n    return b\n"),), "mistakes"),
)  # fmt: skip
