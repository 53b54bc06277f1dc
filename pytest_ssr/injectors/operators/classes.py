"""Operators on classes: remove a base or a method, or change the order of methods."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators.operator import Edits, Operator
from pytest_ssr.source.syntax_tree import DEFINITIONS, Edit, ParsedSource, statements, without_statement


def remove_base_class(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Remove one base class."""
    bases = node.child_by_field_name("superclasses")
    if bases is None:
        return
    removable = [c for c in bases.named_children if c.type in ("identifier", "attribute")]
    if len(removable) == 1 and bases.named_child_count == 1:
        yield (Edit(bases.start_byte, bases.end_byte, b""),)
        return
    all_bases = bases.named_children
    for base in removable:
        position = all_bases.index(base)
        if position + 1 < len(all_bases):
            yield (Edit(base.start_byte, all_bases[position + 1].start_byte, b""),)
        else:
            yield (Edit(all_bases[position - 1].end_byte, base.end_byte, b""),)


def _methods(node: Node) -> list[Node]:
    body = node.child_by_field_name("body")
    return [s for s in statements(body) if s.type in DEFINITIONS] if body is not None else []


def remove_method(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Remove one method."""
    for method in _methods(node):
        yield (without_statement(source, method),)


def shuffle_methods(source: ParsedSource, node: Node, rng: Random) -> Edits:
    """Exchange two neighbouring definitions of a class, which matters if one uses the other at import."""
    methods = _methods(node)
    for one, other in pairwise(methods):
        yield (
            Edit(one.start_byte, one.end_byte, source.text(other)),
            Edit(other.start_byte, other.end_byte, source.text(one)),
        )


_CLASS = "class A(B):\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"

OPERATORS = (
    Operator("remove-base-class", ("class_definition",), remove_base_class,
             ((_CLASS, _CLASS.replace("(B)", "")), ("class A(B, C): x = 1\n", "class A(C): x = 1\n")), "SWE-smith"),
    Operator("remove-method", ("class_definition",), remove_method,
             ((_CLASS, "class A(B):\n\n    def g(self):\n        return 2\n"),), "SWE-smith"),
    Operator("shuffle-methods", ("class_definition",), shuffle_methods,
             ((_CLASS, "class A(B):\n    def g(self):\n        return 2\n\n    def f(self):\n        return 1\n"),),
             "SWE-smith"),
)  # fmt: skip
