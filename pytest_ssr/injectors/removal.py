"""The injector `removal`: logic is taken out so that the module still imports (arXiv 2512.18552, section 2.3).

A function or method is emptied (signature, decorators and docstring stay; a generator stays one), or a run of
statements goes, or one branch. A run whose values are needed after it stays: what is left runs until it meets the
missing behaviour, not a missing name. Nothing of the removed code survives in a comment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.bindings import Names, names_of, own_nodes
from pytest_ssr.injectors.drawing import Change, draw
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope, indentation, statements
from pytest_ssr.injectors.stand_ins import (
    NOTHING_USED,
    ImportUse,
    called_on_import,
    decorators_of,
    import_use,
    stand_in,
)

_LONGEST_RUN = 6
_COMPOUND = frozenset(("with_statement", "try_statement", "match_statement", "for_statement", "while_statement"))
_EMPTY = frozenset(("pass_statement", "raise_statement"))
_CLAUSES = ("elif_clause", "else_clause", "except_clause", "except_group_clause", "finally_clause", "case_clause")


class RemovalInjector:
    """Draws functions evenly; empties them, or takes runs of statements and branches out."""

    name = "removal"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield one candidate after another until all removals are drawn."""
        shared = import_use(tree)
        known: dict[str, ImportUse | None] = {}

        def find(source: ParsedSource, scope: Scope, chance: Random) -> Sequence[Change]:
            if source.path not in known:
                # The grammar takes Python 2 as well, and the drawing compiles a function without its module.
                own = replace(shared, functions=shared.functions | called_on_import(source))
                known[source.path] = own if parses(source.data) else None
            use = known[source.path]
            return removals_of(source, scope, chance, use=use) if use is not None else ()

        yield from draw(tree, strategy=self.name, seed=seed, enumerate_changes=find)


def removals_of(source: ParsedSource, scope: Scope, chance: Random, use: ImportUse = NOTHING_USED) -> Sequence[Change]:
    """Return every removal in a function: its body, runs of up to six statements of any block, and branches.

    use: what runs while modules are imported; a function among them keeps its body or stays callable.
    """
    if scope.kind != "function" or b"overload" in decorators_of(source, scope.node):
        return ()
    found: list[Change] = []
    for function in _functions(scope.node):
        method = function == scope.node and "." in scope.qualname
        emptied = _emptied(source, function, use)
        if emptied is not None:
            found.append(("remove-method-body" if method else "remove-function-body", (emptied,)))
        nodes = list(own_nodes(function))
        names = names_of(source, function)
        yields = [n.start_byte for n in nodes if n.type == "yield"]
        body = function.child_by_field_name("body")
        for node in nodes:
            operator = "remove-hunk" if node.type == "block" else "remove-branch-logic"
            made = _runs(source, node, whole=node != body) if node.type == "block" else _branch(source, node)
            found += [(operator, (e,)) for e in made if _harmless(e, names, yields)]
    return found


def _functions(top: Node) -> Iterator[Node]:
    stack = [top]
    while stack:
        node = stack.pop()
        if node.type == "function_definition":
            yield node
        stack.extend(reversed(node.named_children))


def _harmless(edit: Edit, names: Names, yields: Sequence[int]) -> bool:
    """Tell whether every name keeps a value and a generator keeps a `yield`."""
    if yields and all(edit.start <= y < edit.end for y in yields):
        return False
    return not names.missed(edit.start, edit.end)


def _emptied(source: ParsedSource, function: Node, use: ImportUse) -> Edit | None:
    body = function.child_by_field_name("body")
    found = statements(body) if body is not None else []
    logic = found[1:] if found and _is_string(found[0]) else found
    if not logic or all(_is_empty(s) for s in logic):
        return None
    lines = stand_in(source, function, logic, use)
    return _replaced(source, logic, lines) if lines is not None else None


def _is_string(statement: Node) -> bool:
    children = statement.named_children
    return (
        statement.type == "expression_statement"
        and len(children) == 1
        and children[0].type in ("string", "concatenated_string")
    )


def _is_empty(statement: Node) -> bool:
    """Tell whether a statement does nothing that could be missed."""
    if statement.type in _EMPTY or _is_string(statement):
        return True
    if statement.type == "return_statement":
        return not statement.named_children or statement.named_children[0].type == "none"
    children = statement.named_children
    return statement.type == "expression_statement" and len(children) == 1 and children[0].type == "ellipsis"


def _replaced(source: ParsedSource, gone: Sequence[Node], lines: Sequence[bytes]) -> Edit:
    """Put lines in the place of all statements of a block from the first to the last, and of comments among them."""
    first, last = gone[0], gone[-1]
    inside = indentation(source, first)
    if source.data[source.line_start(first.start_byte) : first.start_byte].strip():
        return Edit(first.start_byte, _rest_of_line(source, last.end_byte), b"; ".join(lines))
    start = _with_comments_above(source, first, blank=True)
    end = _with_comments_below(source, last.end_byte, len(inside))
    text = source.data[start:end]
    newline = b"\r\n" if b"\r\n" in text or source.data[end : end + 2] == b"\r\n" else b"\n"
    return Edit(start, end, inside + (newline + inside).join(lines))


def _rest_of_line(source: ParsedSource, at: int) -> int:
    """Return where the line ends, its newline not counted."""
    end = source.line_end(at)
    line = source.data[at:end]
    return end - (len(line) - len(line.rstrip(b"\r\n")))


def _with_comments_above(source: ParsedSource, node: Node, *, blank: bool) -> int:
    """Return the start of the node's line, or of the comment lines above that belong to it."""
    start = at = source.line_start(node.start_byte)
    inside = indentation(source, node)
    while at > 0:
        at = source.line_start(at - 1)
        line = source.data[at : source.line_end(at)]
        words = line.strip()
        if not words and blank:
            continue
        place = at + len(line) - len(line.lstrip())
        found = source.root.descendant_for_byte_range(place, place + 1) if words.startswith(b"#") else None
        if found is None or found.type != "comment" or line[: place - at] != inside:
            break
        start = at
    return start


def _with_comments_below(source: ParsedSource, at: int, least: int) -> int:
    """Return the end of the line, or of the comment lines below that are indented by at least so many bytes."""
    end = _rest_of_line(source, at)
    at = source.line_end(end)
    while at < len(source.data):
        line = source.data[at : source.line_end(at)]
        words = line.lstrip()
        if words and (not words.startswith(b"#") or len(line) - len(words) < least):
            break
        if words:
            end = _rest_of_line(source, at)
        at += len(line)
    return end


def _taken_out(source: ParsedSource, first: Node, last: Node) -> Edit | None:
    """Return the edit that takes whole lines out; None when other statements stand on them."""
    if source.data[source.line_start(first.start_byte) : first.start_byte].strip():
        return None
    rest = source.data[last.end_byte : source.line_end(last.end_byte)].strip().lstrip(b";").strip()
    if rest and not rest.startswith(b"#"):
        return None
    start = _with_comments_above(source, first, blank=False)
    end = source.line_end(_with_comments_below(source, last.end_byte, len(indentation(source, first)) + 1))
    return Edit(*_without_gap(source, start, end, at_end=last.next_named_sibling is None), b"")


def _without_gap(source: ParsedSource, start: int, end: int, *, at_end: bool) -> tuple[int, int]:
    """Take the blank lines along that would show where something stood: those above at the end of a block."""
    data = source.data
    if at_end:
        while start and not data[source.line_start(start - 1) : start].strip():
            start = source.line_start(start - 1)
        return start, end
    above = data[source.line_start(start - 1) : start].strip() if start else b""
    if not above or above.endswith(b":"):
        while end < len(data) and not data[end : source.line_end(end)].strip():
            end = source.line_end(end)
    return start, end


def _runs(source: ParsedSource, block: Node, *, whole: bool) -> Iterator[Edit]:
    """Yield runs of two to six statements, and single ones that hold a block; some statement stays in the block.

    whole: all statements may go, for `pass`; where the block is a branch of its own statement.
    """
    found = statements(block)
    if found and _is_string(found[0]):
        del found[0]
    for length in range(1, min(_LONGEST_RUN, len(found) - 1) + 1):
        for first in range(len(found) - length + 1):
            if length == 1 and found[first].type not in _COMPOUND:
                continue
            edit = _taken_out(source, found[first], found[first + length - 1])
            if edit is not None:
                yield edit
    if whole and found and block.parent is not None and block.parent.type == "with_statement":
        yield _replaced(source, found, [b"pass"])


def _branch(source: ParsedSource, node: Node) -> Iterator[Edit]:
    """Yield what takes the logic of one branch out: an `if` without others, a clause, the block below a condition."""
    if node.type in _CLAUSES:
        edit = _taken_out(source, node, node)
        if edit is not None:
            yield edit
    if node.type == "if_statement" and not node.children_by_field_name("alternative"):
        block = node.parent
        others = [s for s in statements(block) if s != node] if block is not None else []
        edit = _taken_out(source, node, node) if others else _replaced(source, [node], [b"pass"])
        if edit is not None:
            yield edit
    elif node.type in (
        "if_statement",
        "elif_clause",
        "except_clause",
        "case_clause",
        "for_statement",
        "while_statement",
    ):
        block = node.child_by_field_name("consequence") or node.child_by_field_name("body")
        if block is None:
            block = next((c for c in node.named_children if c.type == "block"), None)
        inner = statements(block) if block is not None else []
        if inner and not all(s.type == "pass_statement" for s in inner):
            yield _replaced(source, inner, [b"pass"])
