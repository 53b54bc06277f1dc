"""Provide the injector `removal`: remove logic so that the module still imports (arXiv 2512.18552, section 2.3).

A function or method is emptied (signature, decorators and docstring stay; a generator stays a generator), or a run of
statements or one branch is removed. A run whose values are needed after it stays: the rest runs until it meets the
missing behaviour, not a missing name. Nothing of the removed code survives in a comment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.sampler import Change, draw
from pytest_ssr.injectors.stubs import NOTHING_USED, ImportUse, called_on_import, decorators_of, import_use, stub_body
from pytest_ssr.source.bindings import LocalNames, local_names, own_nodes
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, indentation, statements

_MAX_RUN_STATEMENTS = 6
_COMPOUND = frozenset(("with_statement", "try_statement", "match_statement", "for_statement", "while_statement"))
_EMPTY = frozenset(("pass_statement", "raise_statement"))
_CLAUSES = ("elif_clause", "else_clause", "except_clause", "except_group_clause", "finally_clause", "case_clause")


class RemovalInjector:
    """Draws functions evenly; empties them, or removes runs of statements and branches."""

    name = "removal"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield candidates until all removals are drawn."""
        shared = import_use(tree)
        uses: dict[str, ImportUse | None] = {}

        def find(source: ParsedSource, scope: Scope, rng: Random) -> Sequence[Change]:
            if source.path not in uses:
                # The grammar accepts Python 2 as well, and the sampler compiles a function without its module.
                own = replace(shared, functions=shared.functions | called_on_import(source))
                uses[source.path] = own if parses(source.data) else None
            use = uses[source.path]
            return removals_of(source, scope, rng, use=use) if use is not None else ()

        yield from draw(tree, strategy=self.name, seed=seed, enumerate_changes=find)


def removals_of(source: ParsedSource, scope: Scope, rng: Random, use: ImportUse = NOTHING_USED) -> Sequence[Change]:
    """Return every removal in a function: its body, runs of up to six statements of any block, and branches.

    use: the names that run while modules are imported; such a function keeps its body or stays callable.
    """
    if scope.kind != "function" or b"overload" in decorators_of(source, scope.node):
        return ()
    changes: list[Change] = []
    for function in _functions(scope.node):
        method = function == scope.node and "." in scope.qualname
        emptied = _emptied(source, function, use)
        if emptied is not None:
            changes.append(("remove-method-body" if method else "remove-function-body", (emptied,)))
        nodes = list(own_nodes(function))
        names = local_names(source, function)
        yields = [n.start_byte for n in nodes if n.type == "yield"]
        body = function.child_by_field_name("body")
        for node in nodes:
            operator = "remove-hunk" if node.type == "block" else "remove-branch-logic"
            edits = (
                _run_removals(source, node, whole=node != body)
                if node.type == "block"
                else _branch_removals(source, node)
            )
            changes += [(operator, (e,)) for e in edits if _is_harmless(e, names, yields)]
    return changes


def _functions(top: Node) -> Iterator[Node]:
    stack = [top]
    while stack:
        node = stack.pop()
        if node.type == "function_definition":
            yield node
        stack.extend(reversed(node.named_children))


def _is_harmless(edit: Edit, names: LocalNames, yields: Sequence[int]) -> bool:
    """Return whether every name keeps a value and a generator keeps a `yield`."""
    if yields and all(edit.start <= y < edit.end for y in yields):
        return False
    return not names.needed_after(edit.start, edit.end)


def _emptied(source: ParsedSource, function: Node, use: ImportUse) -> Edit | None:
    body = function.child_by_field_name("body")
    body_statements = statements(body) if body is not None else []
    logic = body_statements[1:] if body_statements and _is_string(body_statements[0]) else body_statements
    if not logic or all(_is_empty(s) for s in logic):
        return None
    lines = stub_body(source, function, logic, use)
    return _replacement(source, logic, lines) if lines is not None else None


def _is_string(statement: Node) -> bool:
    children = statement.named_children
    return (
        statement.type == "expression_statement"
        and len(children) == 1
        and children[0].type in ("string", "concatenated_string")
    )


def _is_empty(statement: Node) -> bool:
    """Return whether a statement does nothing that could be missed."""
    if statement.type in _EMPTY or _is_string(statement):
        return True
    if statement.type == "return_statement":
        return not statement.named_children or statement.named_children[0].type == "none"
    children = statement.named_children
    return statement.type == "expression_statement" and len(children) == 1 and children[0].type == "ellipsis"


def _replacement(source: ParsedSource, removed: Sequence[Node], lines: Sequence[bytes]) -> Edit:
    """Replace a block's statements, from the first to the last, and the comments among them with `lines`."""
    first, last = removed[0], removed[-1]
    inside = indentation(source, first)
    if source.data[source.line_start(first.start_byte) : first.start_byte].strip():
        return Edit(first.start_byte, _end_of_line(source, last.end_byte), b"; ".join(lines))
    start = _with_comments_above(source, first, blank=True)
    end = _with_comments_below(source, last.end_byte, len(inside))
    text = source.data[start:end]
    newline = b"\r\n" if b"\r\n" in text or source.data[end : end + 2] == b"\r\n" else b"\n"
    return Edit(start, end, inside + (newline + inside).join(lines))


def _end_of_line(source: ParsedSource, at: int) -> int:
    """Return the offset of the end of the line, before its newline."""
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
        stripped = line.strip()
        if not stripped and blank:
            continue
        offset = at + len(line) - len(line.lstrip())
        comment = source.root.descendant_for_byte_range(offset, offset + 1) if stripped.startswith(b"#") else None
        if comment is None or comment.type != "comment" or line[: offset - at] != inside:
            break
        start = at
    return start


def _with_comments_below(source: ParsedSource, at: int, min_indent: int) -> int:
    """Return the end of the line, or of the comment lines below that are indented by at least `min_indent` bytes."""
    end = _end_of_line(source, at)
    at = source.line_end(end)
    while at < len(source.data):
        line = source.data[at : source.line_end(at)]
        stripped = line.lstrip()
        if stripped and (not stripped.startswith(b"#") or len(line) - len(stripped) < min_indent):
            break
        if stripped:
            end = _end_of_line(source, at)
        at += len(line)
    return end


def _removal(source: ParsedSource, first: Node, last: Node) -> Edit | None:
    """Return the edit that removes whole lines; None if other statements share them."""
    if source.data[source.line_start(first.start_byte) : first.start_byte].strip():
        return None
    rest = source.data[last.end_byte : source.line_end(last.end_byte)].strip().lstrip(b";").strip()
    if rest and not rest.startswith(b"#"):
        return None
    start = _with_comments_above(source, first, blank=False)
    end = source.line_end(_with_comments_below(source, last.end_byte, len(indentation(source, first)) + 1))
    return Edit(*_without_gap(source, start, end, at_end=last.next_named_sibling is None), b"")


def _without_gap(source: ParsedSource, start: int, end: int, *, at_end: bool) -> tuple[int, int]:
    """Extend a removal to the blank lines that would reveal it: those above at the end of a block."""
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


def _run_removals(source: ParsedSource, block: Node, *, whole: bool) -> Iterator[Edit]:
    """Yield removals of two to six statements, and of single ones with a block; some statement stays in the block.

    whole: all statements may be replaced with `pass`, if the block is a branch of its own statement.
    """
    removable = statements(block)
    if removable and _is_string(removable[0]):
        del removable[0]
    for length in range(1, min(_MAX_RUN_STATEMENTS, len(removable) - 1) + 1):
        for first in range(len(removable) - length + 1):
            if length == 1 and removable[first].type not in _COMPOUND:
                continue
            edit = _removal(source, removable[first], removable[first + length - 1])
            if edit is not None:
                yield edit
    if whole and removable and block.parent is not None and block.parent.type == "with_statement":
        yield _replacement(source, removable, [b"pass"])


def _branch_removals(source: ParsedSource, node: Node) -> Iterator[Edit]:
    """Yield removals of one branch: an `if` without alternatives, a clause, or the block below a condition."""
    if node.type in _CLAUSES:
        edit = _removal(source, node, node)
        if edit is not None:
            yield edit
    if node.type == "if_statement" and not node.children_by_field_name("alternative"):
        block = node.parent
        others = [s for s in statements(block) if s != node] if block is not None else []
        edit = _removal(source, node, node) if others else _replacement(source, [node], [b"pass"])
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
            yield _replacement(source, inner, [b"pass"])
