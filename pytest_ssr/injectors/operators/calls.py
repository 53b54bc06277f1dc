"""Operators on calls: exchange or drop arguments, leave out links of a chain, omit copies."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator, replaced, swapped
from pytest_ssr.source.syntax_tree import Edit, ParsedSource

_COPIES = (
    b"list", b"dict", b"set", b"tuple", b"frozenset", b"sorted", b"copy", b"deepcopy", b"copy.copy", b"copy.deepcopy",
)  # fmt: skip


def break_chain(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Leave out the last link of a chain of calls, or the one before it."""
    function = node.child_by_field_name("function")
    inner = function.child_by_field_name("object") if function is not None and function.type == "attribute" else None
    if inner is None or inner.type != "call":
        return
    yield replaced(node, source.text(inner))
    link = inner.child_by_field_name("function")
    origin = link.child_by_field_name("object") if link is not None and link.type == "attribute" else None
    if origin is not None:
        yield replaced(inner, source.text(origin))


def swap_arguments(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange two adjacent arguments of the same kind."""
    kinds = ("identifier", "integer", "string", "attribute", "call")
    arguments = [c for c in node.named_children if c.type != "comment"]
    for one, other in pairwise(arguments):
        if one.type == other.type and one.type in kinds and source.text(one) != source.text(other):
            yield swapped(source, one, other)


def drop_keyword(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Forget a keyword argument."""
    arguments = [c for c in node.named_children if c.type != "comment"]
    for position, argument in enumerate(arguments):
        if argument.type == "keyword_argument":
            if position + 1 < len(arguments):
                yield (Edit(argument.start_byte, arguments[position + 1].start_byte, b""),)
            elif position:
                yield (Edit(arguments[position - 1].end_byte, argument.end_byte, b""),)
            else:
                yield replaced(argument, b"")


def lost_copy(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Share an object instead of copying it: `x.copy()`, `list(x)`, `x[:]` become `x`."""
    if node.type == "subscript":
        value, index = node.child_by_field_name("value"), node.child_by_field_name("subscript")
        if value is not None and index is not None and source.text(index).strip() == b":":
            yield replaced(node, source.text(value))
        return
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    values = arguments.named_children
    name = source.text(function)
    if function.type == "attribute" and not values and name.endswith(b".copy"):
        inner = function.child_by_field_name("object")
        if inner is not None:
            yield replaced(node, source.text(inner))
    elif name in _COPIES and len(values) == 1 and values[0].type in ("identifier", "attribute", "subscript"):
        yield replaced(node, source.text(values[0]))


OPERATORS = (
    Operator("break-chain", ("call",), break_chain,
             (("x = a.b().c()\n", "x = a.b()\n"), ("x = a.b().c()\n", "x = a.c()\n")), "SWE-smith"),
    Operator("swap-arguments", ("argument_list",), swap_arguments, (("f(a, b)\n", "f(b, a)\n"),), "mistakes"),
    Operator("drop-keyword", ("argument_list",), drop_keyword,
             (("f(a, k=1)\n", "f(a)\n"), ("f(k=1, m=2)\n", "f(m=2)\n")), "mistakes"),
    Operator("lost-copy", ("call", "subscript"), lost_copy,
             (("x = list(a)\n", "x = a\n"), ("x = a[:]\n", "x = a\n"), ("x = a.copy()\n", "x = a\n")), "mistakes"),
)  # fmt: skip
