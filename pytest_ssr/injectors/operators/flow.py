"""Operators on control flow: values not returned or awaited, other exceptions, other jumps."""

from __future__ import annotations

from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, replaced
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, indentation, statements, without_statement

_SIMILAR = {
    b"KeyError": b"IndexError", b"IndexError": b"KeyError", b"ValueError": b"TypeError", b"TypeError": b"ValueError",
    b"AttributeError": b"KeyError", b"OSError": b"FileNotFoundError", b"Exception": b"ValueError",
    b"StopIteration": b"IndexError", b"ImportError": b"ModuleNotFoundError", b"LookupError": b"KeyError",
    b"UnicodeDecodeError": b"UnicodeEncodeError", b"ZeroDivisionError": b"OverflowError",
    b"FileNotFoundError": b"PermissionError", b"RuntimeError": b"NotImplementedError", b"BaseException": b"Exception",
    b"UnicodeEncodeError": b"UnicodeDecodeError", b"ArithmeticError": b"ZeroDivisionError", b"IOError": b"FileNotFoundError",
    b"AssertionError": b"ValueError", b"NotImplementedError": b"AttributeError", b"NameError": b"AttributeError",
}  # fmt: skip
_ENDS = ("break_statement", "continue_statement", "return_statement", "raise_statement")


def lost_return(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Forget to return a value, or return None."""
    value = node.named_children[0] if node.named_children else None
    if value is None or value.type == "none":
        return
    if value.type in ("call", "await"):
        yield replaced(node, source.text(value))
    yield replaced(value, b"None")


def lost_await(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Forget an `await`."""
    inner = node.named_children[0] if node.named_children else None
    if inner is not None:
        yield replaced(node, source.text(inner))


def wrong_exception(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Catch or raise a similar exception instead of the intended one, or forget one of several."""
    for child in node.named_children:
        name = child
        if child.type == "call":
            name = child.child_by_field_name("function") or child
        elif child.type == "as_pattern" and child.named_children:
            name = child.named_children[0]
        if name.type == "tuple":
            yield from _fewer(source, name)
        elif name.type == "identifier" and source.text(name) in _SIMILAR:
            yield replaced(name, _SIMILAR[source.text(name)])


def _fewer(source: ParsedSource, several: Node) -> Edits:
    names = [c for c in several.named_children if c.type != "comment"]
    for omitted in names if len(names) > 1 else ():
        remaining = [source.text(n) for n in names if n != omitted]
        yield replaced(several, remaining[0] if len(remaining) == 1 else b"(" + b", ".join(remaining) + b")")


def change_jump(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange `break` and `continue`, or remove the statement."""
    yield replaced(node, b"break" if node.type == "continue_statement" else b"continue")
    yield (without_statement(source, node),)


def early_break(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Leave a loop after its first iteration."""
    body = node.child_by_field_name("body")
    inside = statements(body) if body is not None else []
    if not inside or inside[-1].type in _ENDS:
        return
    last = inside[-1]
    if source.line_start(inside[0].start_byte) == source.line_start(node.start_byte):
        return
    newline = b"\r\n" if b"\r\n" in source.data else b"\n"
    yield (Edit(last.end_byte, last.end_byte, newline + indentation(source, inside[0]) + b"break"),)


OPERATORS = (
    Operator("lost-return", ("return_statement",), lost_return,
             (("def f():\n    return g()\n", "def f():\n    g()\n"),
              ("def f(a):\n    return a\n", "def f(a):\n    return None\n")), "mistakes"),
    Operator("lost-await", ("await",), lost_await,
             (("async def f():\n    x = await g()\n", "async def f():\n    x = g()\n"),), "mistakes"),
    Operator("wrong-exception", ("except_clause", "raise_statement"), wrong_exception,
             (("try:\n    a()\nexcept KeyError:\n    b()\n", "try:\n    a()\nexcept IndexError:\n    b()\n"),
              ("try:\n    a()\nexcept (B, C) as e:\n    b()\n", "try:\n    a()\nexcept C as e:\n    b()\n"),
              ("raise ValueError('a')\n", "raise TypeError('a')\n")), "mistakes"),
    Operator("change-jump", ("break_statement", "continue_statement"), change_jump,
             (("while a:\n    b()\n    break\n", "while a:\n    b()\n    continue\n"),
              ("while a:\n    break\n", "while a:\n    pass\n")), "mistakes"),
    Operator("early-break", ("for_statement", "while_statement"), early_break,
             (("for x in a:\n    b(x)\nc()\n", "for x in a:\n    b(x)\n    break\nc()\n"),), "mistakes"),
)  # fmt: skip
