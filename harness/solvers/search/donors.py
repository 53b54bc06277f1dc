"""What a file offers for its own repair: statements, conditions, values and arguments that stand elsewhere in it.

Most of what a fix needs is in the file already (the plastic surgery hypothesis; Barr et al., FSE 2014).
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope, indentation, is_docstring, statements, walk

Found = Iterator[tuple[str, float, tuple[Edit, ...]]]
"""Repairs: their kind, how likely the kind is, the edits."""
SIGNATURE = 200
"""Bytes in which a function's `self` is looked for."""
MOST_DONORS = 60
_LONGEST_LINES = 6
BUILT_IN = frozenset(name.encode() for name in dir(builtins))
_SIMPLE = frozenset(
    ("expression_statement", "return_statement", "raise_statement", "break_statement", "continue_statement",
     "if_statement", "for_statement", "while_statement", "assert_statement", "delete_statement", "with_statement")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Donor:
    """A piece of the file."""

    text: bytes
    """Its lines, the first without indentation, the others relative to it."""
    names: frozenset[bytes]
    """The names it uses, attributes left out."""
    home: int
    """The first byte of the scope it is from."""


def names_in(source: ParsedSource, node: Node) -> frozenset[bytes]:
    """Return the names that a piece of code uses: no attributes, no keywords of calls."""
    found = set()
    for part in walk(node):
        if part.type != "identifier" or part.parent is None:
            continue
        parent = part.parent
        if parent.type == "attribute" and parent.child_by_field_name("attribute") == part:
            continue
        if parent.type == "keyword_argument" and parent.child_by_field_name("name") == part:
            continue
        found.add(source.text(part))
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def known_everywhere(source: ParsedSource) -> frozenset[bytes]:
    """Return the names that every function of a module can use: its own, what it imports, the built-in ones."""
    found = set(BUILT_IN)
    for node in source.root.named_children:
        target = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        if target is None:
            continue
        name = target.child_by_field_name("name")
        if name is not None and target.type in ("function_definition", "class_definition"):
            found.add(source.text(name))
        elif target.type in ("import_statement", "import_from_statement", "expression_statement", "if_statement",
                             "try_statement"):  # fmt: skip
            found |= {source.text(n) for n in _identifiers(target)}
    return frozenset(found)


def _identifiers(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current.type == "identifier":
            yield current
        waiting += current.children


def statement_donors(source: ParsedSource, scope: Scope) -> list[Donor]:
    """Return the statements of a function that could stand elsewhere, none longer than six lines."""
    found = []
    for node in walk(scope.node):
        if node.type not in _SIMPLE or is_docstring(node) or node.parent is None or node.parent.type != "block":
            continue
        if node.end_point.row - node.start_point.row >= _LONGEST_LINES:
            continue
        inner = indentation(source, node)
        lines = source.text(node).split(b"\n")
        if any(line.strip() and not line.startswith(inner) for line in lines[1:]):
            continue
        text = b"\n".join([lines[0], *(line[len(inner) :] for line in lines[1:])])
        found.append(Donor(text, names_in(source, node), scope.start))
    return found


def condition_donors(source: ParsedSource, scope: Scope) -> Iterator[Donor]:
    """Yield the conditions of a function: of `if` and `while`, and the sides of `and` and `or`."""
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
    """Return the statements of a function's body, the docstring left out."""
    body = scope.node.child_by_field_name("body")
    found = statements(body) if body is not None else []
    return found[1:] if found and is_docstring(found[0]) else found


def put(node: Node, text: bytes) -> tuple[Edit, ...]:
    """Return the edit that puts a text in a node's place."""
    return (Edit(node.start_byte, node.end_byte, text),)


def parameters(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    """Return the names of a function's parameters, but for `self` and `cls`."""
    return frozenset(ordered_parameters(source, scope))


def ordered_parameters(source: ParsedSource, scope: Scope) -> list[bytes]:
    """Return the names of a function's parameters in their order, but for `self` and `cls`."""
    parameters = scope.node.child_by_field_name("parameters")
    found: dict[bytes, None] = {}
    for child in parameters.named_children if parameters is not None else ():
        name = child.child_by_field_name("name") or (child.named_children[0] if child.named_children else child)
        found[source.text(name)] = None
    return [name for name in found if name not in (b"self", b"cls")]


def idle_names(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    """Return the parameters and variables of a function that nothing in it uses: what was taken out may have."""
    if scope.kind != "function":
        return frozenset()
    uses: dict[bytes, list[Node]] = {}
    for node in _identifiers(scope.node):
        uses.setdefault(source.text(node), []).append(node)
    given = parameters(source, scope)
    found = (n for n, nodes in uses.items() if len(nodes) == 1 and (n in given or _is_target(nodes[0])))
    return frozenset(n for n in found if not n.startswith(b"_"))


def _is_target(node: Node) -> bool:
    """Tell whether a name is given a value there."""
    while node.parent is not None and node.parent.type in ("pattern_list", "tuple_pattern"):
        node = node.parent
    parent = node.parent
    return parent is not None and (parent.type == "as_pattern_target" or parent.child_by_field_name("left") == node)


def locals_of(source: ParsedSource, scope: Scope) -> frozenset[bytes]:
    """Return the names that are a function's own."""
    return (names_in(source, scope.node) - known_everywhere(source) | parameters(source, scope)) - {b"self", b"cls"}


def near(scope: Scope, others: Sequence[Scope]) -> list[Scope]:
    """Return the functions to take from: the function itself, those of its class, the others by their distance."""
    own = scope.qualname.rpartition(".")[0]
    functions = [s for s in others if s.kind == "function"]
    return sorted(
        functions,
        key=lambda s: (s != scope, s.qualname.rpartition(".")[0] != own, abs(s.start - scope.start)),
    )[:12]


def fitting(source: ParsedSource, scope: Scope, donors: Sequence[Donor]) -> list[Donor]:
    """Return the donors whose names a function knows, each text once."""
    usable = names_in(source, scope.node) | known_everywhere(source) | parameters(source, scope)
    found: dict[bytes, Donor] = {}
    for donor in donors:
        if donor.names <= usable:
            found.setdefault(donor.text, donor)
    return list(found.values())[:MOST_DONORS]
