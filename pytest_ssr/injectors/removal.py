"""The injector `removal`: logic is taken out so that the module still imports (arXiv 2512.18552, section 2.3).

A function or method is emptied (signature, decorators and docstring stay; a generator stays one), or a run of
statements goes. Nothing of the removed code survives in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.drawing import Change, draw
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.python_source import (
    Edit,
    ParsedSource,
    Scope,
    indentation,
    is_docstring,
    statements,
    walk,
)

_SMALLEST_RUN, _LONGEST_RUN = 2, 6


class RemovalInjector:
    """Draws functions evenly and empties them, or takes runs of statements out."""

    name = "removal"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield one candidate after another until all removals are drawn."""
        return draw(tree, strategy=self.name, seed=seed, enumerate_changes=removals_of)


def removals_of(source: ParsedSource, scope: Scope, chance: Random) -> Sequence[Change]:
    """Return every removal in a function: its whole body, and runs of two to six statements of any block."""
    if scope.kind != "function":
        return ()
    name = "remove-method-body" if "." in scope.qualname else "remove-function-body"
    found: list[Change] = [(name, edits) for edits in _emptied(source, scope.node)]
    for node in walk(scope.node):
        if node.type == "block":
            found += [("remove-hunk", edits) for edits in _runs(source, node)]
    return found


def _emptied(source: ParsedSource, function: Node) -> Iterator[tuple[Edit, ...]]:
    body = function.child_by_field_name("body")
    if body is None or _on_one_line(source, function, body):
        return
    logic = [s for s in statements(body) if not is_docstring(s)]
    if not logic or (len(logic) == 1 and logic[0].type in ("pass_statement", "raise_statement")):
        return
    inside = indentation(source, logic[0])
    yield (Edit(logic[0].start_byte, body.end_byte, _stand_in(source, function, logic, inside)),)


def _stand_in(source: ParsedSource, function: Node, logic: list[Node], inside: bytes) -> bytes:
    """Return the least body that callers can import and call: empty generators, `self` from `__enter__`, `pass`."""
    name_node = function.child_by_field_name("name")
    name = source.text(name_node) if name_node is not None else b""
    own = b"\n".join(source.text(s) for s in logic)
    if re.search(rb"\byield\b", own):
        return b"return\n" + inside + b"yield"
    if name in (b"__enter__", b"__aenter__", b"__iter__", b"__new__"):
        return b"return super().__new__(cls)" if name == b"__new__" else b"return self"
    if name == b"__init__" and re.search(rb"super\(\)\.__init__\(", own):
        call = next((s for s in logic if b"super().__init__(" in source.text(s)), None)
        return source.text(call) if call is not None else b"pass"
    return b"return None" if re.search(rb"\breturn\s+\S", own) else b"pass"


def _runs(source: ParsedSource, block: Node) -> Iterator[tuple[Edit, ...]]:
    found = [s for s in statements(block) if not is_docstring(s)]
    clean = [not source.data[source.line_start(s.start_byte) : s.start_byte].strip() for s in found]
    for length in range(_SMALLEST_RUN, min(_LONGEST_RUN, len(found)) + 1):
        for first in range(len(found) - length + 1):
            last = found[first + length - 1]
            if not clean[first] or b";" in source.data[last.end_byte : source.line_end(last.end_byte)]:
                continue
            start = source.line_start(found[first].start_byte)
            if length == len(found):
                yield (Edit(found[first].start_byte, last.end_byte, b"pass"),)
            else:
                yield (Edit(start, source.line_end(last.end_byte), b""),)


def _on_one_line(source: ParsedSource, function: Node, body: Node) -> bool:
    return source.line_start(function.start_byte) == source.line_start(body.start_byte)
