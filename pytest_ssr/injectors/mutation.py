"""Provide the injector `mutation`: one small change by one operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from tree_sitter import Node

from pytest_ssr.injectors.operators import OPERATORS, Operator
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.sampler import Change, draw
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, constants, walk

_BY_TYPE: dict[str, list[Operator]] = {}
for _operator in OPERATORS:
    for _type in _operator.types:
        _BY_TYPE.setdefault(_type, []).append(_operator)


class MutationInjector:
    """Draws locations evenly and operators in balance."""

    name = "mutation"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield candidates until all changes of all locations are drawn."""
        return draw(tree, strategy=self.name, seed=seed, enumerate_changes=changes_of)


def changes_of(source: ParsedSource, scope: Scope, rng: Random) -> Sequence[Change]:
    """Return every change that an operator makes in a scope."""
    last = max(scope.end, source.line_end(scope.end))
    return [
        (operator.name, edits)
        for node in nodes_of(source, scope)
        for operator in _BY_TYPE.get(node.type, ())
        for edits in operator.find(source, node, rng)
        if all(scope.start <= e.start and e.end <= last for e in edits)
    ]


def nodes_of(source: ParsedSource, scope: Scope) -> Iterator[Node]:
    """Yield the nodes that belong to a scope: all of a function; of a class or module, those outside functions."""
    if scope.kind == "function":
        yield from walk(scope.node)
        return
    if scope.kind == "class":
        yield scope.node
    body = scope.node.child_by_field_name("body") if scope.kind == "class" else scope.node
    for statement in constants(source, body) if body is not None else ():
        yield from walk(statement)
