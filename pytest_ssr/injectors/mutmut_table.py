"""Provide the injector `mutmut`, which makes the changes of mutmut's own operator table.

mutmut 3 maps nodes of LibCST's tree to changed nodes (`mutmut.mutation.mutators.mutation_operators`). Each changed
node becomes an edit of the node's bytes in the file, so the rest of the file stays as it is. Which nodes are code, and
how locations are drawn, is decided as for the injector `mutation`. mutmut's runner and trampolines are not used.
"""

from __future__ import annotations

import importlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from pytest_ssr.errors import MissingExtraError
from pytest_ssr.injectors.mutation import nodes_of
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.sampler import Change, draw
from pytest_ssr.source.parsing import is_utf8
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, replace_non_ascii

if TYPE_CHECKING:
    import libcst

    Entry = tuple[type, Callable[[libcst.CSTNode], Iterable[libcst.CSTNode]]]

_BOM = b"\xef\xbb\xbf"
_EDGES = b" \t\r\n(),[]{}:;"
_MAX_LEAD_BYTES = 200


class MutmutInjector:
    """Draws locations as the injector `mutation` does, and changes them with mutmut's operators."""

    name = "mutmut"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield one candidate after another; raises MissingExtraError immediately if mutmut is not installed."""
        table = _load_table()
        files: dict[str, _File] = {}

        def changes_of(source: ParsedSource, scope: Scope, rng: Random) -> Sequence[Change]:
            if source.path not in files:
                files[source.path] = _File(source, table)
            return list(files[source.path].changes(scope))

        return draw(tree, strategy=self.name, seed=seed, enumerate_changes=changes_of)


def _load_table() -> tuple[Entry, ...]:
    try:
        importlib.import_module("mutmut")
        mutators = importlib.import_module("mutmut.mutation.mutators")
    except ModuleNotFoundError as error:
        if error.name != "mutmut":
            raise
        raise MissingExtraError("mutmut", "mutmut") from None
    return tuple(mutators.mutation_operators)


@dataclass(frozen=True, slots=True)
class _Located:
    """A node of LibCST and its location in the file."""

    start: int
    """Offset of the first byte, without parentheses."""
    end: int
    """Offset after the last byte, without parentheses."""
    node: libcst.CSTNode
    """The node."""
    indent: bytes
    """The white space before the statement that contains the node."""


class _File:
    """One file as a LibCST tree."""

    def __init__(self, source: ParsedSource, table: Sequence[Entry]) -> None:
        import libcst
        from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

        self._source, self._table, self._cst = source, table, libcst
        shift = len(_BOM) if source.data.startswith(_BOM) else 0
        text = source.data[shift:] if is_utf8(source.data) else replace_non_ascii(source.data)
        self._nodes: list[_Located] = []
        self._spans: dict[libcst.CSTNode, tuple[int, int]] = {}
        try:
            module = libcst.parse_module(text)
        except libcst.ParserSyntaxError:
            return
        self._module = module
        positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
        self._spans = {n: (s.start + shift, s.start + shift + s.length) for n, s in positions.items()}
        self._nodes = sorted(self._locate(module), key=lambda located: (located.start, -located.end))

    def _locate(self, module: libcst.Module) -> Iterator[_Located]:
        cst = self._cst
        kinds = tuple({kind: None for kind, _ in self._table})
        pending: list[tuple[libcst.CSTNode, bytes]] = [(module, b"")]
        while pending:
            node, indent = pending.pop()
            # The span of a comparison target includes white space, that of its operator does not.
            start, end = self._spans.get(node.operator if isinstance(node, cst.ComparisonTarget) else node, (0, 0))
            if isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement | cst.MatchCase):
                line = self._source.data[self._source.line_start(start) : start]
                indent = line[: len(line) - len(line.lstrip(b" \t"))]
            if end > start and isinstance(node, kinds):
                yield _Located(start, end, node, indent)
            pending += [(child, indent) for child in node.children]

    def changes(self, scope: Scope) -> Iterator[Change]:
        """Yield the table's changes of the nodes of a scope, with mutmut's names of the operators."""
        code = {n.start_byte for n in nodes_of(self._source, scope)}
        first = bisect_left(self._nodes, scope.start, key=lambda located: located.start)
        for located in self._nodes[first:]:
            if located.start >= scope.end:
                return
            if located.start in code and located.end <= scope.end:
                for kind, operator in self._table:
                    if isinstance(located.node, kind):
                        name = operator.__name__.replace("_", "-").removeprefix("operator-")
                        for changed in operator(located.node):
                            edit = self._edit(located, changed)
                            if edit is not None:
                                yield name, (edit,)

    def _edit(self, located: _Located, changed: libcst.CSTNode) -> Edit | None:
        cst, node = self._cst, located.node
        if isinstance(node, cst.Match) and isinstance(changed, cst.Match):
            return self._without_case(node, changed)
        if isinstance(node, cst.ComparisonTarget) and isinstance(changed, cst.ComparisonTarget):
            return Edit(located.start, located.end, self._module.code_for_node(changed.operator).strip().encode())
        if not isinstance(node, cst.BaseExpression | cst.BaseSmallStatement):
            return Edit(located.start, located.end, self._module.code_for_node(changed).strip().encode())
        old = self._rendered(node, located.indent)
        new = self._rendered(changed, located.indent)
        lead = self._lead(located, old)
        return None if lead is None else _narrowed(lead, old, new)

    def _rendered(self, node: libcst.CSTNode, indent: bytes) -> bytes:
        """Return a node's text with the indentation of its statement, which LibCST keeps outside the node."""
        cst = self._cst
        if not indent or not isinstance(node, cst.BaseExpression | cst.BaseSmallStatement):
            return self._encoded(self._module.code_for_node(node))
        statement = node if isinstance(node, cst.BaseSmallStatement) else cst.Expr(node)
        block = cst.IndentedBlock([cst.SimpleStatementLine([statement])], indent=indent.decode())
        text = self._encoded(self._module.code_for_node(block))
        newline = self._encoded(self._module.default_newline)
        return text.removeprefix(newline).removeprefix(indent).removesuffix(newline)

    def _encoded(self, text: str) -> bytes:
        return text.encode("utf-8", "surrogatepass")

    def _lead(self, located: _Located, old: bytes) -> int | None:
        """Return the offset of the node with its parentheses, or None if the file does not have that text there."""
        for start in range(located.start, max(-1, located.start - _MAX_LEAD_BYTES), -1):
            if start + len(old) >= located.end and self._source.data.startswith(old, start):
                return start
        return None

    def _without_case(self, node: libcst.Match, changed: libcst.Match) -> Edit | None:
        remaining = {id(case) for case in changed.cases}
        removed = next((case for case in node.cases if id(case) not in remaining), None)
        if removed is None:
            return None
        start, end = self._spans[removed]
        return Edit(self._source.line_start(start), self._source.line_end(max(start, end - 1)), b"")


def _narrowed(start: int, old: bytes, new: bytes) -> Edit | None:
    """Return the smallest edit of whole words that turns the old text into the new; None if they are equal."""
    if old == new:
        return None
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    while head and old[head - 1] not in _EDGES:
        head -= 1
    limit -= head
    tail = next((i for i in range(limit) if old[-1 - i] != new[-1 - i]), limit)
    while tail and old[-tail] not in _EDGES:
        tail -= 1
    return Edit(start + head, start + len(old) - tail, new[head : len(new) - tail])
