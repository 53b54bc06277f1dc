"""Collect donor code for repairs from the file itself: its statements, conditions and names.

Most of what a fix needs is already in the file (the plastic surgery hypothesis; Barr et al., FSE 2014).
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, indentation, is_docstring, statements, walk

RepairEdits = Iterator[tuple[str, float, tuple[Edit, ...]]]
"""Repairs as (pattern, weight of the pattern, edits)."""
SIGNATURE = 200
"""Number of bytes of a function in which `self` is searched for."""
MAX_DONORS = 60
_TARGETS = ("pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern")
_BINDING = ("assignment", "for_statement", "for_in_clause")
_MAX_LINES = 6
BUILT_IN = frozenset(name.encode() for name in dir(builtins))
_SIMPLE = frozenset(
    ("expression_statement", "return_statement", "raise_statement", "break_statement", "continue_statement",
     "if_statement", "for_statement", "while_statement", "assert_statement", "delete_statement", "with_statement")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Donor:
    """A piece of code from the file."""

    text: bytes
    """Its lines: the first without indentation, the others indented relative to it."""
    names: frozenset[bytes]
    """The names that it uses, without attributes."""
    home: int
    """The first byte of the scope that it comes from."""


@functools.lru_cache(maxsize=16)
def nodes_of(source: ParsedSource) -> tuple[Node, ...]:
    """Return what `walk` yields for a whole file; kept, because the repairs of every function need it."""
    return tuple(walk(source.root))


@functools.lru_cache(maxsize=1 << 13)
def names_in(source: ParsedSource, node: Node) -> frozenset[bytes]:
    """Return the names that a piece of code uses, without attributes and keywords of calls."""
    names = set()
    for part in walk(node):
        if part.type != "identifier" or part.parent is None:
            continue
        parent = part.parent
        if parent.type == "attribute" and parent.child_by_field_name("attribute") == part:
            continue
        if parent.type == "keyword_argument" and parent.child_by_field_name("name") == part:
            continue
        names.add(source.text(part))
    return frozenset(names)


@functools.lru_cache(maxsize=64)
def module_names(source: ParsedSource) -> frozenset[bytes]:
    """Return the names that every function of a module can use: the module's, imported and built-in ones."""
    names = set(BUILT_IN)
    for node in source.root.named_children:
        target = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        if target is None:
            continue
        name = target.child_by_field_name("name")
        if name is not None and target.type in ("function_definition", "class_definition"):
            names.add(source.text(name))
        elif target.type in ("import_statement", "import_from_statement", "expression_statement", "if_statement",
                             "try_statement"):  # fmt: skip
            names |= {source.text(n) for n in _identifiers(target)}
    return frozenset(names)


def _identifiers(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "identifier":
            yield current
        stack += current.children


def statement_donors(source: ParsedSource, scope: Scope) -> list[Donor]:
    """Return the statements of a function that can be inserted elsewhere, of at most six lines each."""
    donors = []
    for node in walk(scope.node):
        if node.type not in _SIMPLE or is_docstring(node) or node.parent is None or node.parent.type != "block":
            continue
        if node.end_point.row - node.start_point.row >= _MAX_LINES:
            continue
        inner = indentation(source, node)
        lines = source.text(node).split(b"\n")
        if any(line.strip() and not line.startswith(inner) for line in lines[1:]):
            continue
        text = b"\n".join([lines[0], *(line[len(inner) :] for line in lines[1:])])
        donors.append(Donor(text, names_in(source, node), scope.start))
    return donors


def condition_donors(source: ParsedSource, scope: Scope) -> Iterator[Donor]:
    """Yield the conditions of a function: those of `if` and `while`, and the operands of `and` and `or`."""
    for node in walk(scope.node):
        parts: list[Node | None] = []
        if node.type in ("if_statement", "elif_clause", "while_statement"):
            parts = [node.child_by_field_name("condition")]
        elif node.type == "boolean_operator":
            parts = [node.child_by_field_name("left"), node.child_by_field_name("right")]
        for part in parts:
            if part is not None and b"\n" not in source.text(part):
                yield Donor(source.text(part), names_in(source, part), scope.start)


def body_of(source: ParsedSource, scope: Scope) -> list[Node]:
    """Return the statements of a function's body without the docstring."""
    block = scope.node.child_by_field_name("body")
    body = statements(block) if block is not None else []
    return body[1:] if body and is_docstring(body[0]) else body


def replace_node(node: Node, text: bytes) -> tuple[Edit, ...]:
    """Return the edit that replaces a node by other code."""
    return (Edit(node.start_byte, node.end_byte, text),)


def parameters(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    """Return the names of a function's parameters, except `self` and `cls`."""
    return frozenset(ordered_parameters(source, scope))


def ordered_parameters(source: ParsedSource, scope: Scope) -> list[bytes]:
    """Return the names of a function's parameters in order, except `self` and `cls`."""
    return [argument.lstrip(b"*").partition(b"=")[0] for argument in forwarded_arguments(source, scope)]


def forwarded_arguments(source: ParsedSource, scope: Scope) -> list[bytes]:
    """Return the arguments that pass all parameters of a function on, except `self` and `cls`."""
    node = scope.node.child_by_field_name("parameters")
    arguments, by_name = [], False
    for child in node.named_children if node is not None else ():
        stars = source.text(child)[: 2 if source.text(child).startswith(b"**") else 1]
        if child.type == "keyword_separator" or stars == b"*":
            by_name = True
        name = child.child_by_field_name("name") or next((n for n in walk(child) if n.type == "identifier"), None)
        if name is None or source.text(name) in (b"self", b"cls"):
            continue
        if stars in (b"*", b"**"):
            arguments.append(stars + source.text(name))
        else:
            arguments.append(b"%s=%s" % (source.text(name), source.text(name)) if by_name else source.text(name))
    return arguments


def unused_names(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    """Return the parameters and variables of a function that it does not use; code that the bug removed may have."""
    if scope.kind != "function":
        return frozenset()
    uses: dict[bytes, list[Node]] = {}
    for node in _identifiers(scope.node):
        uses.setdefault(source.text(node), []).append(node)
    own_parameters = parameters(source, scope)
    unused = (n for n, nodes in uses.items() if len(nodes) == 1 and (n in own_parameters or is_target(nodes[0])))
    return frozenset(n for n in unused if not n.startswith(b"_"))


def is_target(node: Node) -> bool:
    """Return whether a name or an attribute is assigned a value at a node."""
    while node.parent is not None and node.parent.type in _TARGETS:
        node = node.parent
    parent = node.parent
    if parent is None or parent.type == "as_pattern_target":
        return parent is not None
    return parent.type in _BINDING and parent.child_by_field_name("left") == node


def locals_of(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    """Return the local names of a function."""
    return (names_in(source, scope.node) - module_names(source) | parameters(source, scope)) - {b"self", b"cls"}


def nearby_functions(scope: Scope, others: Sequence[Scope]) -> list[Scope]:
    """Return the functions to take donors from: the function itself, those of its class, then the nearest others."""
    own = scope.qualname.rpartition(".")[0]
    functions = [s for s in others if s.kind == "function"]
    return sorted(
        functions,
        key=lambda s: (s != scope, s.qualname.rpartition(".")[0] != own, abs(s.start - scope.start)),
    )[:12]


def usable_donors(source: ParsedSource, scope: Scope, donors: Sequence[Donor]) -> list[Donor]:
    """Return the donors whose names a function can use, without duplicates."""
    usable = names_in(source, scope.node) | module_names(source) | parameters(source, scope)
    unique: dict[bytes, Donor] = {}
    for donor in donors:
        if donor.names <= usable:
            unique.setdefault(donor.text, donor)
    return list(unique.values())[:MAX_DONORS]
